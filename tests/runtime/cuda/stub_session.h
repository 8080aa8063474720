#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/error.h>

#include "tests/runtime/cuda/stub_driver.h"

/// An environment variable, set (or with nullptr unset) for a scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value);
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable();

 private:
  std::string name_;
  std::optional<std::string> before_;
};

/// A test's time with the stub driver: named as the one to load, its switches off, no context current.
class StubSession {
 public:
  /// `fresh` names it by a path that was not used before, so that it is loaded as if for the first time.
  explicit StubSession(bool fresh = false);
  StubSession(const StubSession&) = delete;
  StubSession& operator=(const StubSession&) = delete;
  ~StubSession();

 private:
  ScopedVariable driver_;
};

/// One entry, `forward`, that takes every argument, for n up to 100 in tiles of 32 with 132 workers of 128
/// threads, no workspace; its cubin and PTX are such that the stub takes them on an sm_90 device.
[[nodiscard]] sparsekiln::Binary stub_binary();
[[nodiscard]] std::shared_ptr<const sparsekiln::Binary> shared(sparsekiln::Binary binary);
[[nodiscard]] std::vector<std::byte> code_of(const std::string& text);

/// The Error that `action` throws; nothing where it throws none.
template <typename Action>
[[nodiscard]] std::optional<sparsekiln::Error> error_of(Action&& action) {
  try {
    action();
  } catch (const sparsekiln::Error& error) {
    return error;
  }
  return std::nullopt;
}

[[nodiscard]] inline bool says(const std::optional<sparsekiln::Error>& error, const std::string& words) {
  return error && std::string(error->what()).find(words) != std::string::npos;
}
