#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>

#include "compiler/layout_file/disk.h"
#include "compiler/layout_file/mtx.h"
#include "compiler/layout_file/npy.h"
#include "compiler/layout_file/smtx.h"
#include "compiler/layout_file/text.h"

namespace sparsekiln {

namespace {

namespace formats = layout_file;

/// A format is a row of this table; the last one takes every other extension.
struct Format {
  std::string_view ending;
  Layout (*parse)(std::string_view text, std::string_view name);
  void (*write)(const Layout& layout, const formats::Sink& sink);
};

Layout parse_npy(std::string_view text, std::string_view name) {
  return formats::parse_npy(std::as_bytes(std::span(text)), name);
}

constexpr std::array<Format, 4> kFormats{{
    {".npy", parse_npy, formats::write_npy},
    {".mtx", formats::parse_mtx, formats::write_mtx},
    {".smtx", formats::parse_smtx, formats::write_smtx},
    {"", formats::parse_text, formats::write_text},
}};

const Format& format_of(const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  for (const Format& format : kFormats)
    if (format.ending == ending) return format;
  return kFormats.back();
}

}  // namespace

Layout Layout::load(const std::filesystem::path& file) {
  const std::string bytes = formats::read_file(file);
  return format_of(file).parse(bytes, file.string());
}

void Layout::save(const std::filesystem::path& file) const {
  formats::replace_file(file, [&](const formats::Sink& sink) { format_of(file).write(*this, sink); });
}

}  // namespace sparsekiln
