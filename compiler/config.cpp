#include <sparsekiln/config.h>

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/named.h"

namespace sparsekiln {
namespace {

constexpr std::array kForms{Named{TableForm::constant, "constant"}, Named{TableForm::global, "global"},
                            Named{TableForm::unrolled, "unrolled"}, Named{TableForm::attached, "attached"}};

constexpr std::array kOperands{Named{OperandA::x, "x"}, Named{OperandA::w, "w"}};

struct Number {
  std::string_view name;
  std::int32_t Config::* field;
};
constexpr std::array kNumbers{Number{"tile_n", &Config::tile_n},
                              Number{"tile_out", &Config::tile_out},
                              Number{"stages", &Config::stages},
                              Number{"warps", &Config::warps},
                              Number{"split", &Config::split},
                              Number{"rows", &Config::rows},
                              Number{"merge", &Config::merge},
                              Number{"split_saves", &Config::split_saves},
                              Number{"in_flight", &Config::in_flight},
                              Number{"cluster", &Config::cluster},
                              Number{"cluster_rows", &Config::cluster_rows}};

/// The text of a number that has another one than its digits.
struct Word {
  std::int32_t Config::* field;
  std::int32_t number;
  std::string_view text;  ///< empty: the field is left out
};
constexpr std::array kWords{Word{&Config::in_flight, kAllInFlight, "all"},
                            Word{&Config::in_flight, kDerivedInFlight, ""},
                            Word{&Config::split, kDerivedSplit, "derived"}, Word{&Config::cluster, 1, ""},
                            Word{&Config::cluster_rows, 1, ""}};

std::string text_of(const Config& config, const Number& number) {
  for (const Word& word : kWords)
    if (word.field == number.field && word.number == config.*number.field)
      return word.text.empty() ? "" : fmt::format(" {}={}", number.name, word.text);
  return fmt::format(" {}={}", number.name, config.*number.field);
}

/// The names of the knobs of a variant.
const std::array<std::string_view, kMostKnobs>& knobs_of(Variant variant) {
  return kVariants[static_cast<std::size_t>(variant)].knobs;
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("config '{}': {}; a config reads '{}'", printable(text), why, to_string(Config{})));
}

std::int32_t parse_number(std::string_view text, std::string_view value) {
  std::int32_t number = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (status != std::errc{} || end != value.data() + value.size() || number < 0)
    refuse(text, fmt::format("'{}' is not a number from 0", printable(value)));
  return number;
}

void assign(Config& config, std::string_view text, std::string_view field, std::string_view value) {
  for (const Number& number : kNumbers) {
    if (number.name != field) continue;
    const auto* const word = std::find_if(kWords.begin(), kWords.end(), [&](const Word& one) {
      return one.field == number.field && one.text == value && !value.empty();
    });
    config.*number.field = word == kWords.end() ? parse_number(text, value) : word->number;
    return;
  }
  const auto& knobs = knobs_of(config.variant);
  const auto knob = field.empty() ? knobs.end() : std::find(knobs.begin(), knobs.end(), field);
  if (knob != knobs.end()) {
    config.knobs[static_cast<std::size_t>(knob - knobs.begin())] = parse_number(text, value);
  } else if (field == "table") {
    config.table = parse_in(kForms, value, "table form");
  } else if (field == "operand_a") {
    config.operand_a = parse_in(kOperands, value, "operand");
  } else if (field == "packed") {
    config.packed = parse_number(text, value) != 0;
  } else {
    refuse(text, fmt::format("there is no field '{}'", printable(field)));
  }
}

}  // namespace

std::string_view name(Variant variant) { return name_in(kVariants, variant); }
std::string_view name(TableForm form) { return name_in(kForms, form); }
std::string_view name(OperandA operand) { return name_in(kOperands, operand); }

std::string to_string(const Config& config) {
  std::string text(name(config.variant));
  for (const Number& number : kNumbers) text += text_of(config, number);
  for (std::size_t i = 0; i < kMostKnobs; ++i)
    if (config.knobs[i] != 0) text += fmt::format(" {}={}", knobs_of(config.variant)[i], config.knobs[i]);
  return text + fmt::format(" table={} operand_a={} packed={}", name(config.table), name(config.operand_a),
                            config.packed ? 1 : 0);
}

Config parse_config(std::string_view text) {
  Config config;
  std::string_view rest = text;
  for (bool first = true; !rest.empty(); first = false) {
    const std::size_t blank = rest.find(' ');
    const std::string_view word = rest.substr(0, blank);
    rest = blank == std::string_view::npos ? std::string_view{} : rest.substr(blank + 1);
    const std::size_t equals = word.find('=');
    if (first) {
      config.variant = parse_in(kVariants, word, "variant");
    } else if (equals == std::string_view::npos) {
      refuse(text, fmt::format("'{}' is not FIELD=VALUE", printable(word)));
    } else {
      assign(config, text, word.substr(0, equals), word.substr(equals + 1));
    }
  }
  if (text.empty()) refuse(text, "it is empty");
  return config;
}

void check_knobs(const Config& config) {
  for (std::size_t i = 0; i < kMostKnobs; ++i)
    if (config.knobs[i] != 0 && knobs_of(config.variant)[i].empty())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("a config of variant {} with a knob {}={}: the variant has no such one, and 0 "
                              "would work",
                              name(config.variant), i, config.knobs[i]));
}

std::string to_string(const Plan& plan) {
  std::string text;
  for (const RangedConfig& range : plan)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", range.up_to, to_string(range.config));
  return text;
}

Plan parse_plan(std::string_view text) {
  Plan plan;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t semicolon = rest.find("; ");
    const std::string_view range = rest.substr(0, semicolon);
    const bool last = semicolon == std::string_view::npos;
    rest = last ? std::string_view{} : rest.substr(semicolon + 2);
    const std::size_t colon = range.find(": ");
    std::int64_t up_to = 0;
    const std::string_view bound = range.substr(0, colon);
    const auto [end, status] = std::from_chars(bound.data(), bound.data() + bound.size(), up_to);
    const bool ascends = plan.empty() || up_to > plan.back().up_to;
    if (colon == std::string_view::npos || status != std::errc{} || end != bound.data() + bound.size() ||
        up_to < 0 || !ascends || (rest.empty() && !last))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("plan '{}': '{}' is no range; a plan reads '64: {}', its ranges ascending and "
                              "joined by '; '",
                              printable(text), printable(range), to_string(Config{})));
    plan.push_back({up_to, parse_config(range.substr(colon + 2))});
  }
  return plan;
}

}  // namespace sparsekiln
