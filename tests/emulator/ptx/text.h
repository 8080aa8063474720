#pragma once

#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "emulator/ptx/parse.h"

namespace sparsekiln::ptx {

inline constexpr std::string_view kHead = ".version 9.0\n.target sm_90\n.address_size 64\n";
inline constexpr int kFirstModuleLine = 4;
inline constexpr int kFirstBodyLine = 6;

/// A module with `text` from its fourth line on.
inline Module module_of(std::string_view text) { return parse(std::string(kHead).append(text)); }

/// A module with one kernel, whose body starts in the sixth line.
inline std::string kernel_text(std::string_view body, std::string_view parameters = "") {
  std::string text(kHead);
  text.append(".visible .entry k(").append(parameters).append(")\n{\n").append(body).append("\n}\n");
  return text;
}
inline Function kernel_of(std::string_view body, std::string_view parameters = "") {
  return std::move(parse(kernel_text(body, parameters)).functions.at(0));
}

/// The message with which a text is refused; empty: it is not.
inline std::string refusal(std::string_view text) {
  try {
    static_cast<void>(parse(text));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}
inline std::string module_refusal(std::string_view text) { return refusal(std::string(kHead).append(text)); }
inline std::string kernel_refusal(std::string_view body, std::string_view parameters = "") {
  return refusal(kernel_text(body, parameters));
}

}  // namespace sparsekiln::ptx
