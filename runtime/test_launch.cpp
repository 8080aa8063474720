#include "runtime/test_launch.h"

#include <mutex>
#include <type_traits>
#include <utility>
#include <variant>

#include "compiler/problem_kind.h"
#include "oracle/sddmm_check.h"
#include "oracle/spmm_check.h"
#include "runtime/resident_sddmm.h"
#include "runtime/resident_spmm.h"

namespace sparsekiln {
namespace {

/// Bytes of the expected results that a test launch keeps from one check to the next.
constexpr double kMostKept = 1 << 30;

/// Operands is ResidentSpmm or ResidentSddmm, Outputs what it fetches.
template <class Resident, class Outputs>
class ResidentTestLaunch : public PlacedOperands {
 public:
  ResidentTestLaunch(Resident resident, Outputs outputs)
      : resident_(std::move(resident)), outputs_(std::move(outputs)) {}
  std::size_t bytes() const override { return resident_.bytes(); }

 protected:
  Operands& operands(std::size_t copy) override { return resident_[copy]; }
  std::size_t copies() const override { return resident_.copies(); }
  const Outputs& fetch() {
    resident_.fetch(outputs_);
    return outputs_;
  }

 private:
  Resident resident_;
  Outputs outputs_;
};

void append(const PoisonedOutput& output, std::vector<std::byte>* image) {
  if (image == nullptr) return;
  image->insert(image->end(), output.image().begin(), output.image().end());
  for (const PoisonedOutput& other : output.others()) append(other, image);
}

class SpmmTestLaunch final : public TestLaunch {
 public:
  SpmmTestLaunch(const Problem& problem, const Spmm& product, const TestLaunchShape& launch, Inputs kind,
                 std::uint64_t seed)
      : problem_(problem), padding_(launch.padding) {
    inputs_ = make_inputs(product, launch.n, kind, seed,
                          stride(product, product.dtype, product.x_row_length(launch.n)));
    if (!launch.accumulates) inputs_.beta = 0;
  }

  std::unique_ptr<PlacedOperands> place(const Kernel& kernel, const std::shared_ptr<const Device>& device,
                                        int copies) const override {
    const Spmm product(problem_);
    PoisonedOutput output(product, inputs_.n,
                          stride(product, product.result_dtype, result_row_length(product, inputs_.n)));
    output.hold(inputs_);
    ResidentSpmm resident(kernel, problem_, device, inputs_, output, copies);
    return std::make_unique<OnDevice>(*this, std::move(resident), std::move(output));
  }

 private:
  class OnDevice final : public ResidentTestLaunch<ResidentSpmm, PoisonedOutput> {
   public:
    OnDevice(const SpmmTestLaunch& test_launch, ResidentSpmm resident, PoisonedOutput output)
        : ResidentTestLaunch(std::move(resident), std::move(output)), test_launch_(test_launch) {}
    CheckResult judge(const Plan& plan, std::vector<std::byte>* image) override {
      const PoisonedOutput& output = fetch();
      append(output, image);
      return test_launch_.check(output, adder_of(test_launch_.problem_, plan));
    }

   private:
    const SpmmTestLaunch& test_launch_;
  };

  /// Elements from one row of an activation, of such a length, to the next.
  [[nodiscard]] std::int64_t stride(const Spmm& product, DType dtype, std::int64_t length) const {
    return packed_stride(product, dtype, length) + padding_;
  }

  /// Keeps what it expects where that is no burden, for the results of more kernels.
  [[nodiscard]] CheckResult check(const PoisonedOutput& output, Adder adder) const {
    const Spmm product(problem_);
    const double bytes = 16.0 * product.weights() * static_cast<double>(product.y_rows(inputs_.n)) *
                         static_cast<double>(product.out_features());
    if (bytes > kMostKept) return sparsekiln::check(product, inputs_, output, adder);
    std::call_once(expects_, [&] { expected_ = expect(product, inputs_); });
    return sparsekiln::check(product, inputs_, expected_, output, adder);
  }

  Problem problem_;
  std::int64_t padding_;
  HostInputs inputs_;
  mutable std::once_flag expects_;
  mutable Expected expected_;
};

class SddmmTestLaunch final : public TestLaunch {
 public:
  SddmmTestLaunch(const Problem&, const Sddmm& gradient, const TestLaunchShape& launch, Inputs kind,
                  std::uint64_t seed)
      : gradient_(gradient), inputs_(make_inputs(gradient_, gradient_launch(launch, kind), kind, seed)) {}

  std::unique_ptr<PlacedOperands> place(const Kernel& kernel, const std::shared_ptr<const Device>& device,
                                        int copies) const override {
    SddmmOutputs outputs(gradient_, inputs_);
    ResidentSddmm resident(gradient_, device, inputs_, outputs, copies,
                           kernel.binary().operands.convolution.dynamic);
    return std::make_unique<OnDevice>(*this, std::move(resident), std::move(outputs));
  }

 private:
  [[nodiscard]] SddmmLaunch gradient_launch(const TestLaunchShape& launch, Inputs kind) const {
    SddmmLaunch made{.n = launch.n, .pairs = launch.pairs, .padding = launch.padding};
    // float64 gradients are given numbers that no float is. Integers stay exact.
    const bool any = gradient_.sum_type() == DType::f64 && kind == Inputs::random;
    if (any) made.alpha = 0.1;
    if (launch.accumulates) made.beta = any ? -1.7 : 1;
    return made;
  }

  class OnDevice final : public ResidentTestLaunch<ResidentSddmm, SddmmOutputs> {
   public:
    OnDevice(const SddmmTestLaunch& test_launch, ResidentSddmm resident, SddmmOutputs outputs)
        : ResidentTestLaunch(std::move(resident), std::move(outputs)), test_launch_(test_launch) {}
    CheckResult judge(const Plan& plan, std::vector<std::byte>* image) override {
      const SddmmOutputs& outputs = fetch();
      for (const PoisonedOutput* output : {&outputs.dw, &outputs.dbias, &outputs.dblock_scales})
        append(*output, image);
      return test_launch_.check(outputs, adder_of(test_launch_.gradient_.ieee(), plan));
    }

   private:
    const SddmmTestLaunch& test_launch_;
  };

  [[nodiscard]] CheckResult check(const SddmmOutputs& outputs, Adder adder) const {
    const double bytes = 16.0 * static_cast<double>(gradient_.layout.blocks() * gradient_.block_elements());
    if (bytes > kMostKept) return sparsekiln::check(gradient_, inputs_, outputs, adder);
    std::call_once(expects_, [&] { expected_ = reference(gradient_, inputs_); });
    return sparsekiln::check(gradient_, inputs_, expected_, outputs, adder);
  }

  Sddmm gradient_;
  SddmmInputs inputs_;
  mutable std::once_flag expects_;
  mutable SddmmReference expected_;
};

/// The test launch of each kind of problem.
template <class Kind>
struct TestLaunchFor;
template <>
struct TestLaunchFor<Spmm> : std::type_identity<SpmmTestLaunch> {};
template <>
struct TestLaunchFor<Sddmm> : std::type_identity<SddmmTestLaunch> {};

}  // namespace

void PlacedOperands::launch(const Kernel& kernel, void* stream) {
  Operands& next = operands(next_);
  next.stream = stream;
  next_ = next_ + 1 < copies() ? next_ + 1 : 0;
  kernel(next);
}

Problem problem_of_launch(const Problem& problem, const TestLaunchShape& launch) {
  Problem of_launch = problem;
  const Convolution& convolution = problem.convolution;
  if (convolution.dynamic)
    of_launch.convolution =
        convolution.at(launch.input == Convolution::Extents{0, 0, 0} ? convolution.input : launch.input);
  return of_launch;
}

std::unique_ptr<const TestLaunch> make_test_launch(const Problem& problem, const TestLaunchShape& launch,
                                                   Inputs kind, std::uint64_t seed) {
  const Problem of_launch = problem_of_launch(problem, launch);
  return std::visit(
      [&]<class Kind>(const Kind& computed) -> std::unique_ptr<const TestLaunch> {
        using Made = typename TestLaunchFor<Kind>::type;
        return std::make_unique<Made>(of_launch, computed, launch, kind, seed);
      },
      computed_by(of_launch));
}

}  // namespace sparsekiln
