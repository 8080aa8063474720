#include "runtime/stored_requests.h"

#include <functional>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

#include "compiler/computation_fields.h"
#include "runtime/request.h"
#include "tests/temporary_folder.h"

namespace sparsekiln {
namespace {

/// A store without layouts: what is asked for here has attached ones.
class Empty final : public cache::ReadOnlyStore {
 public:
  Empty() : ReadOnlyStore("empty") {}
  [[nodiscard]] std::optional<std::vector<std::byte>> get(const cache::Identity&) const override {
    return std::nullopt;
  }
  [[nodiscard]] std::vector<cache::Identity> identities() const override { return {}; }
};

Plan attached_plan() {
  Config config;
  config.table = TableForm::attached;
  return {{64, config}};
}

TEST_CASE("every field of a computation comes back from the identity that it is stored under") {
  const std::vector<std::pair<std::string_view, std::string_view>> changes{
      {"operation", "grad_weight"},
      {"block", "16x8"},
      {"batch", "up-to:64"},
      {"dtype", "bf16"},
      {"out_dtype", "f16"},
      {"math", "tf32"},
      {"order", "feature-major"},
      {"strict_absent", "yes"},
      {"epilogue", "scale+bias+silu+glu+residual"},
      {"derivative", "gelu"},
      {"gates", "yes"},
      {"bias_gradient", "yes"},
      {"gate_gradient", "yes"},
      {"alignment", "4"},
      {"overlap_launches", "yes"},
      {"convolution", "kernel=2x2 stride=2x1 padding=1x1 transposed output-padding=1x0 input=8x6 taps=1101"}};
  CHECK(changes.size() == computation_fields().size());
  for (const auto& [field, text] : changes) {
    CAPTURE(field);
    Problem problem;
    computation_field(field).read(problem, text);
    CHECK_FALSE(static_cast<Computation&>(problem) == Computation{});
    const cache::Identity identity =
        identity_of(problem, {Target::Kind::cuda, "sm_90", 132}, attached_plan());
    const StoredRequest stored = stored_request(Empty(), identity);
    CHECK(computation_of(stored.options) == static_cast<Computation&>(problem));
    CHECK(stored.options.target == "sm_90:132");
    CHECK(stored.plan == attached_plan());
    CHECK(stored.current);
  }
}

TEST_CASE("an identity of an earlier version, which lacks a field that was added later, is read") {
  const Target target{Target::Kind::cuda, "sm_90", 132};
  const cache::Identity identity = identity_of(Problem{}, target, attached_plan());
  for (const auto& [field, value] : identity.fields()) CHECK(field != "convolution");
  CHECK(computation_of(stored_request(Empty(), identity).options) == Computation{});
}

TEST_CASE("an identity that lacks a field, or has one that this version does not know, is refused as such") {
  const cache::Identity whole = identity_of(Problem{}, {Target::Kind::cuda, "sm_90", 132}, attached_plan());
  for (const bool left_out : {true, false}) {
    CAPTURE(left_out);
    cache::Identity other;
    for (const auto& [field, value] : whole.fields()) {
      if (field != "math")
        other.add(field, value);
      else if (!left_out)
        other.add(field, "exact");
    }
    try {
      static_cast<void>(stored_request(Empty(), other));
      FAIL("it was taken");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::cache);
    }
  }
}

}  // namespace
}  // namespace sparsekiln
