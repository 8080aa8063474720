#pragma once

#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

/// Whether `parse` refuses, with a message that begins with `beginning`; shows the message where it does not.
template <typename Parse>
[[nodiscard]] bool refuses_with(Parse parse, const std::string& beginning) {
  std::string message = "accepted";
  try {
    static_cast<void>(parse());
  } catch (const sparsekiln::Error& error) {
    CHECK(error.kind() == sparsekiln::ErrorKind::invalid_argument);
    message = error.what();
  }
  if (message.starts_with(beginning)) return true;
  MESSAGE(message);
  return false;
}
