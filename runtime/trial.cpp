#include "runtime/trial.h"

#include <mutex>
#include <span>
#include <utility>

#include "autotune/oracle.h"
#include "autotune/weight_gradient.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"
#include "runtime/resident_gradient.h"
#include "runtime/resident_operands.h"

namespace sparsekiln {
namespace {

/// Bytes of what a trial expects, that it keeps from one check to the next.
constexpr double kMostKept = 1 << 30;

/// Operands is ResidentOperands or ResidentGradient, Outputs what it fetches.
template <class Resident, class Outputs>
class ResidentLayer : public Layer {
 public:
  ResidentLayer(Resident resident, Outputs outputs)
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
  if (image != nullptr) image->insert(image->end(), output.image().begin(), output.image().end());
}

class ProductTrial final : public Trial {
 public:
  ProductTrial(const Problem& problem, const TrialLaunch& launch, Inputs kind, std::uint64_t seed)
      : problem_(problem), padding_(launch.padding) {
    const Spmm product(problem);
    inputs_ = make_inputs(product, launch.n, kind, seed,
                          stride(product, product.dtype, launch.n, product.in_features()));
    if (!launch.accumulates) inputs_.beta = 0;
  }

  std::unique_ptr<Layer> place(const Kernel& kernel, const std::shared_ptr<const Device>& device,
                               int copies) const override {
    const Spmm product(problem_);
    PoisonedOutput output(product, inputs_.n,
                          stride(product, product.out_dtype, inputs_.n, product.out_features()));
    if (inputs_.beta != 0) output.set(inputs_.y);
    ResidentOperands resident(kernel, problem_, device, inputs_, output, copies);
    return std::make_unique<OnDevice>(*this, std::move(resident), std::move(output));
  }

 private:
  class OnDevice final : public ResidentLayer<ResidentOperands, PoisonedOutput> {
   public:
    OnDevice(const ProductTrial& trial, ResidentOperands resident, PoisonedOutput output)
        : ResidentLayer(std::move(resident), std::move(output)), trial_(trial) {}
    Verdict judge(const Plan& plan, std::vector<std::byte>* image) override {
      const PoisonedOutput& output = fetch();
      append(output, image);
      return trial_.check(output, adder_of(trial_.problem_, plan));
    }

   private:
    const ProductTrial& trial_;
  };

  /// Elements from one row of an activation to the next.
  [[nodiscard]] std::int64_t stride(const Spmm& product, DType dtype, std::int64_t n,
                                    std::int64_t features) const {
    return packed_stride(product, dtype, product.feature_major() ? n : features) + padding_;
  }

  /// Keeps what it expects where that is no burden, for the results of more kernels.
  [[nodiscard]] Verdict check(const PoisonedOutput& output, Adder adder) const {
    const Spmm product(problem_);
    const double bytes = 16.0 * product.weights() * static_cast<double>(inputs_.n) *
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

class GradientTrial final : public Trial {
 public:
  GradientTrial(const Problem& problem, const TrialLaunch& launch, Inputs kind, std::uint64_t seed)
      : gradient_(problem),
        inputs_(make_inputs(gradient_,
                            {.n = launch.n,
                             .pairs = launch.pairs,
                             .padding = launch.padding,
                             .beta = launch.accumulates ? 1.0f : 0.0f},
                            kind, seed)) {}

  std::unique_ptr<Layer> place(const Kernel&, const std::shared_ptr<const Device>& device,
                               int copies) const override {
    WeightGradientOutputs outputs(gradient_, inputs_);
    ResidentGradient resident(gradient_, device, inputs_, outputs, copies);
    return std::make_unique<OnDevice>(*this, std::move(resident), std::move(outputs));
  }

 private:
  class OnDevice final : public ResidentLayer<ResidentGradient, WeightGradientOutputs> {
   public:
    OnDevice(const GradientTrial& trial, ResidentGradient resident, WeightGradientOutputs outputs)
        : ResidentLayer(std::move(resident), std::move(outputs)), trial_(trial) {}
    Verdict judge(const Plan& plan, std::vector<std::byte>* image) override {
      const WeightGradientOutputs& outputs = fetch();
      for (const PoisonedOutput* output : {&outputs.dw, &outputs.dbias, &outputs.dgates})
        append(*output, image);
      return trial_.check(outputs, adder_of(trial_.gradient_.ieee(), plan));
    }

   private:
    const GradientTrial& trial_;
  };

  [[nodiscard]] Verdict check(const WeightGradientOutputs& outputs, Adder adder) const {
    const double bytes = 16.0 * static_cast<double>(gradient_.layout.blocks() * gradient_.block_elements());
    if (bytes > kMostKept) return sparsekiln::check(gradient_, inputs_, outputs, adder);
    std::call_once(expects_, [&] { expected_ = reference(gradient_, inputs_); });
    return sparsekiln::check(gradient_, inputs_, expected_, outputs, adder);
  }

  Sddmm gradient_;
  WeightGradientInputs inputs_;
  mutable std::once_flag expects_;
  mutable WeightGradientReference expected_;
};

}  // namespace

void Layer::launch(const Kernel& kernel, void* stream) {
  Operands& next = operands(next_);
  next.stream = stream;
  next_ = next_ + 1 < copies() ? next_ + 1 : 0;
  kernel(next);
}

std::unique_ptr<const Trial> make_trial(const Problem& problem, const TrialLaunch& launch, Inputs kind,
                                        std::uint64_t seed) {
  if (problem.operation == Operation::grad_weight)
    return std::make_unique<GradientTrial>(problem, launch, kind, seed);
  return std::make_unique<ProductTrial>(problem, launch, kind, seed);
}

}  // namespace sparsekiln
