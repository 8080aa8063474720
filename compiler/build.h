#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <sparsekiln/binary.h>

#include "compiler/toolchain.h"

namespace sparsekiln {

/// Problem → Schedule → Source → Binary: pure but for the compiler's library. One range of n per entry of the
/// plan; with attached tables what all layouts share, of which attach makes one that can be launched.
/// Throws `compile` with log and source, or `invalid_argument` where plan and target do not fit the
/// problem.
[[nodiscard]] Binary build_binary(const Problem& problem, const Target& target, const Plan& plan,
                                  const Toolchain& toolchain = {});

/// The source alone, for people and tests.
[[nodiscard]] std::string emit_source(const Problem& problem, const Target& target, const Plan& plan);

/// Whether configs can compute a problem on a target: asked of many, it prepares once what they share.
class ConfigCheck {
 public:
  ConfigCheck(const Problem& problem, const Target& target);
  ~ConfigCheck();
  ConfigCheck(const ConfigCheck&) = delete;
  ConfigCheck& operator=(const ConfigCheck&) = delete;
  /// The message that says what is wrong with `config` and what would work; empty where nothing is.
  [[nodiscard]] std::string refusal(const Config& config) const;

 private:
  struct Asked;
  std::unique_ptr<const Asked> asked_;
};

/// Digest of the compiler's own sources and templates, taken when this library was built (hexadecimal).
[[nodiscard]] std::string_view compiler_digest();

}  // namespace sparsekiln
