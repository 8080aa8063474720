#include "tools/layer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/spmm.h"
#include "runtime/operands.h"

namespace sparsekiln::tools {

std::shared_ptr<const Device> device_for(const Target& target, const std::string& asked) {
  if (target.kind == Target::Kind::cpu) return open_device("cpu");
  return open_device(asked.starts_with("cuda") || asked.starts_with("emulated") ? asked : "cuda");
}

std::int64_t batch_of(std::optional<std::int64_t> asked, Batch batch) {
  if (!asked) return batch.bound();
  if (*asked < 0 || *asked > batch.bound() || (!batch.dynamic() && *asked != batch.bound()))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--n {} does not fit --batch {}: {}", *asked, to_string(batch),
                            batch.dynamic() ? fmt::format("it is 0 to {}", batch.bound())
                                            : fmt::format("--batch up-to:{} takes it", *asked)));
  return *asked;
}

Copies::Copies(std::shared_ptr<const Device> device, std::size_t bytes, int copies)
    : bytes_(bytes),
      stride_((bytes + 255) / 256 * 256),
      device_(std::move(device)),
      memory_(device_, stride_ * static_cast<std::size_t>(copies)) {}

Layer::Layer(const Kernel& kernel, const Problem& problem, std::shared_ptr<const Device> device,
             const HostInputs& inputs, int copies)
    : output_(problem, inputs.n),
      device_(std::move(device)),
      x_(device_, inputs.x.size(), copies),
      w_(device_, inputs.w.size(), copies),
      packed_(device_, kernel.packed_elements() != 0 ? inputs.w.size() : 0, copies),
      y_(device_, output_.image().size(), copies) {
  for (int copy = 0; copy < copies; ++copy) {
    x_.copy_in(copy, inputs.x.data());
    w_.copy_in(copy, inputs.w.data());
    y_.copy_in(copy, output_.image().data());
    Operands& operands = operands_.emplace_back(operands_of(
        problem.operation,
        strided_view(x_.at(copy), problem.dtype, inputs.n, Spmm(problem).in_features(), inputs.x_stride),
        view(w_.at(copy), problem.dtype, problem.layout.blocks(), problem.block.out, problem.block.in),
        output_.view(y_.at(copy))));
    if (kernel.packed_elements() == 0) continue;
    kernel.pack(operands.w, packed_.at(copy));
    operands.w.data = packed_.at(copy);
  }
}

void Layer::launch(const Kernel& kernel, void* stream) {
  Operands& operands = operands_[next_];
  operands.stream = stream;
  next_ = next_ + 1 < operands_.size() ? next_ + 1 : 0;
  kernel(operands);
}

const PoisonedOutput& Layer::fetch() {
  device_->copy_out(output_.image().data(), y_.at(0), output_.image().size());
  return output_;
}

Verdict judge(const Kernel& kernel, const Problem& problem, const std::shared_ptr<const Device>& device,
              const HostInputs& inputs, std::vector<std::byte>* image) {
  Layer layer(kernel, problem, device, inputs);
  layer.launch(kernel);
  layer.synchronize();
  const PoisonedOutput& output = layer.fetch();
  if (image != nullptr) image->assign(output.image().begin(), output.image().end());
  return check(problem, inputs, output, adder_of(problem, kernel.binary().plan));
}

Json describe(const Verdict& verdict) {
  return {{"ok", verdict.ok},
          {"wrong", verdict.wrong},
          {"unwritten", verdict.unwritten},
          {"stray", verdict.stray},
          {"first_failure", verdict.first_failure}};
}

void report_check(const Checked& checked, Answer& answer) {
  const double ratio = std::max(checked.exact.max_error_ratio, checked.random.max_error_ratio);
  answer.json["checked"] = true;
  answer.json["rel_error"] = checked.random.rel_error;
  answer.json["max_error_ratio"] = ratio;
  answer.json["exact"] = describe(checked.exact);
  answer.json["random"] = describe(checked.random);
  answer.text += fmt::format(
      "check: small integers {}, random {}; relative error {:.3g}, largest error / bound {:.3g}\n",
      checked.exact.ok ? "exact" : "WRONG", checked.random.ok ? "ok" : "WRONG", checked.random.rel_error,
      ratio);
  for (const Verdict* verdict : {&checked.exact, &checked.random})
    if (!verdict->ok) answer.text += fmt::format("  {}\n", verdict->first_failure);
  if (!checked.ok()) answer.status = kFailed;
}

}  // namespace sparsekiln::tools
