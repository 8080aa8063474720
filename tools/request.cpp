#include "tools/request.h"

#include "runtime/prebuilt.h"

namespace sparsekiln::tools {

Options Request::options() const {
  Options options;
  options.block = parse_block_shape(block);
  options.batch = parse_batch(batch);
  options.dtype = parse_dtype(dtype);
  if (!out_dtype.empty()) options.out_dtype = parse_dtype(out_dtype);
  options.math = parse_math(math);
  options.operation = parse_operation(operation);
  options.order = parse_activation_order(activation_order);
  options.epilogue = parse_epilogue(epilogue);
  options.derivative = parse_activation(derivative);
  options.strict_absent = strict_absent;
  options.gates = gates;
  options.bias_gradient = bias_gradient;
  options.gate_gradient = gate_gradient;
  options.in_features = in_features;
  options.out_features = out_features;
  options.alignment = alignment;
  options.target = target;
  if (!config.empty()) options.config = parse_config(config);
  options.specialization = specialization_of(attached, tiered);
  options.cache_dir = cache_dir;
  options.packs = packs;
  options.require = parse_require(require);
  return options;
}

Built build_request(const Request& request, const Layout& layout, const Options& options) {
  try {
    return build(layout, options);
  } catch (const MissingPrebuilt& missing) {
    throw missing.for_file(request.file.string());
  }
}

Kernel compile_request(const Request& request, const Layout& layout, const Options& options) {
  try {
    return sparsekiln::compile(layout, options);
  } catch (const MissingPrebuilt& missing) {
    throw missing.for_file(request.file.string());
  }
}

}  // namespace sparsekiln::tools
