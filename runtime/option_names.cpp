#include <array>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/named.h"

namespace sparsekiln {
namespace {

constexpr std::array kOrigins{Named{From::compiled, "compiled"}, Named{From::store, "store"},
                              Named{From::memory, "memory"}, Named{From::pack, "pack"}};
constexpr std::array kRequirements{Named{Require::anything, "anything"}, Named{Require::built, "built"},
                                   Named{Require::prebuilt, "prebuilt"}};
constexpr std::array kTunings{Named{Tuning::recorded, "recorded"}, Named{Tuning::now, "now"}};
constexpr std::array kSpecializations{Named{Specialization::baked, "baked"},
                                      Named{Specialization::attached, "attached"},
                                      Named{Specialization::tiered, "tiered"}};
constexpr std::array kTiers{Named{Tier::baked, "baked"}, Named{Tier::attached, "attached"}};

}  // namespace

std::string_view name(From from) { return name_in(kOrigins, from); }
std::string_view name(Require require) { return name_in(kRequirements, require); }
std::string_view name(Tuning tuning) { return name_in(kTunings, tuning); }
std::string_view name(Specialization specialization) { return name_in(kSpecializations, specialization); }
std::string_view name(Tier tier) { return name_in(kTiers, tier); }

Require parse_require(std::string_view text) {
  for (const auto& [value, word] : kRequirements)
    if (text == word) return value;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("require '{}' is not known: anything, built (from packs or the store, never "
                          "compiles), or prebuilt (from packs)",
                          printable(text)));
}

Specialization parse_specialization(std::string_view text) {
  return parse_in(kSpecializations, text, "specialization");
}

Specialization specialization_of(bool attached, bool tiered) {
  if (attached && tiered)
    throw Error(ErrorKind::invalid_argument,
                "attached and tiered: a tiered kernel is attached until the baked one is there; ask for one "
                "of them");
  if (tiered) return Specialization::tiered;
  return attached ? Specialization::attached : Specialization::baked;
}

}  // namespace sparsekiln
