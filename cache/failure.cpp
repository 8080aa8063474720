#include "cache/failure.h"

#include <charconv>
#include <cstdint>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "cache/identity.h"

namespace sparsekiln::cache {

// The payload of a failed entry is a text of named fields, with the grammar of an Identity:
//
//   what = "failed compile", message, log, source, toolchain, made
//
// in this order; made is in whole seconds since 1970, in decimal.

namespace {

constexpr std::string_view kWhat = "failed compile";
constexpr std::string_view kFields[] = {"what", "message", "log", "source", "toolchain", "made"};

std::optional<std::int64_t> parse_seconds(std::string_view text) {
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  // Bounded, so that no arithmetic on it overflows: the value is not trusted.
  const bool sound = error == std::errc{} && end == text.data() + text.size() && seconds >= 0 &&
                     seconds < std::int64_t{1} << 33;
  return sound && fmt::format("{}", seconds) == text ? std::optional(seconds) : std::nullopt;
}

}  // namespace

std::vector<std::byte> encode(const Failure& failure) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(failure.made.time_since_epoch()).count();
  Identity fields;
  fields.add("what", kWhat)
      .add("message", failure.message)
      .add("log", failure.log)
      .add("source", failure.source)
      .add("toolchain", failure.toolchain)
      .add("made", fmt::format("{}", seconds));
  const std::string text = fields.canonical();
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

std::optional<Failure> decode_failure(std::span<const std::byte> payload) {
  const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  const auto read = Identity::from_canonical(text);
  if (!read || read->fields().size() != std::size(kFields)) return std::nullopt;
  const auto& fields = read->fields();
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].first != kFields[i]) return std::nullopt;
  const auto seconds = parse_seconds(fields[5].second);
  if (fields[0].second != kWhat || !seconds) return std::nullopt;
  return Failure{.message = fields[1].second,
                 .log = fields[2].second,
                 .source = fields[3].second,
                 .toolchain = fields[4].second,
                 .made = Stamp(std::chrono::seconds(*seconds))};
}

bool holds(const Failure& failure, std::string_view toolchain, Stamp now) {
  const bool young = failure.made <= now && failure.made > now - kFailureAge;
  return young && failure.toolchain == toolchain;
}

Error remembered(const Failure& failure, Stamp now, const std::filesystem::path& folder) {
  const auto minutes = std::chrono::floor<std::chrono::minutes>(now - failure.made).count();
  return {ErrorKind::compile,
          fmt::format(
              "{}\n(remembered from {} minutes ago, when {} refused it, and not tried again until it is an "
              "hour old; to try now: sparsekiln cache clear --failed --cache-dir '{}')",
              failure.message, minutes, printable(failure.toolchain), printable(folder.string())),
          failure.log, failure.source};
}

}  // namespace sparsekiln::cache
