#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/printable.h>

#include "compiler/layout_file/disk.h"
#include "compiler/layout_file/mtx.h"
#include "compiler/layout_file/npy.h"
#include "compiler/layout_file/smtx.h"
#include "compiler/layout_file/text.h"

namespace sparsekiln {

namespace {

namespace formats = layout_file;

/// A format is a row of this table; the last one is also read from files of every other ending.
struct Format {
  std::string_view ending;
  Layout (*parse)(std::string_view text, std::string_view name);
  void (*write)(const Layout& layout, const formats::Sink& sink);
};

Layout parse_npy(std::string_view text, std::string_view name) {
  return formats::parse_npy(std::as_bytes(std::span(text)), name);
}

constexpr std::array<Format, 5> kFormats{{
    {".npy", parse_npy, formats::write_npy},
    {".mtx", formats::parse_mtx, formats::write_mtx},
    {".smtx", formats::parse_smtx, formats::write_smtx},
    {".txt", formats::parse_text, formats::write_text},
    {"", formats::parse_text, formats::write_text},
}};

/// Null for an ending that names none.
const Format* format_of(const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  for (const Format& format : kFormats)
    if (format.ending == ending) return &format;
  return nullptr;
}

/// A file that is named `.npz` or `.json` is not meant to hold text of 0 and 1.
const Format& format_to_write(const std::filesystem::path& file) {
  if (const Format* format = format_of(file)) return *format;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("cannot write '{}': layouts have no format of the ending '{}'; .npy, .mtx, .smtx or "
                  ".txt would work",
                  printable(file.string()), printable(file.extension().string())));
}

}  // namespace

Layout Layout::load(const std::filesystem::path& file) {
  const std::string bytes = formats::read_file(file);
  const Format* format = format_of(file);
  return (format == nullptr ? kFormats.back() : *format).parse(bytes, file.string());
}

void Layout::save(const std::filesystem::path& file) const {
  const Format& format = format_to_write(file);
  formats::replace_file(file, [&](const formats::Sink& sink) { format.write(*this, sink); });
}

}  // namespace sparsekiln
