#include "tools/options.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "compiler/activation.h"

namespace sparsekiln::tools {
namespace {

template <typename Number>
bool reads_as(const std::string& text) {
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc{} && end == text.data() + text.size();
}

}  // namespace

void add_json(CLI::App& app, Invocation& invocation) {
  app.add_flag("--json", invocation.json, "print one JSON document on standard output, nothing else there");
}

CLI::Validator whole_number() {
  return {[](std::string& text) {
            return reads_as<std::int64_t>(text)
                       ? std::string()
                       : fmt::format("'{}' is not a whole number below 2^63", printable(text));
          },
          ""};
}

CLI::Validator natural_number() {
  return {[](std::string& text) {
            return reads_as<std::uint64_t>(text)
                       ? std::string()
                       : fmt::format("'{}' is not a whole number from 0, below 2^64", printable(text));
          },
          ""};
}

CLI::Validator real_number() {
  return {[](std::string& text) {
            return reads_as<double>(text) ? std::string()
                                          : fmt::format("'{}' is not a number such as 0.25", printable(text));
          },
          ""};
}

void add_problem(CLI::App& app, Request& request) {
  app.add_option("--block", request.block, "block shape: 32, or OUTxIN such as 8x32")->capture_default_str();
  app.add_option("--batch", request.batch, "batch: 64, or up-to:8192 for any n up to 8192")
      ->capture_default_str();
  app.add_option("--dtype", request.dtype, "type of activations and weight: f32, bf16, f16, f64")
      ->capture_default_str();
  app.add_option("--out-dtype", request.out_dtype, "type of the result (as --dtype where not given)");
  app.add_option("--math", request.math,
                 "how f32 products are formed: ieee, or tf32 (operands rounded to it)")
      ->capture_default_str();
  app.add_option("--op", request.operation, "operation: forward, grad_input, grad_weight")
      ->capture_default_str();
  app.add_option("--activation-order", request.activation_order,
                 "memory order of activations: batch-major [n, features], feature-major [features, n]")
      ->capture_default_str();
  app.add_option(
         "--epilogue", request.epilogue,
         fmt::format("what is fused behind the product: none, or scale, bias, one activation ({}), glu, "
                     "residual joined by +, such as bias+gelu",
                     activation_names()))
      ->capture_default_str();
  app.add_option("--derivative", request.derivative,
                 "of gradients: the activation whose derivative dy is multiplied by as it is loaded")
      ->capture_default_str();
  app.add_flag("--strict-absent", request.strict_absent,
               "no config that fills absent blocks with zeros: an Inf in x could spread through them");
  app.add_flag("--gate", request.gates, "scale every block by a number of its own; zeros are skipped");
  app.add_flag("--bias-gradient", request.bias_gradient, "of grad_weight: the gradient of the bias, too");
  app.add_flag("--gate-gradient", request.gate_gradient, "of grad_weight: the gradient of the gates, too");
  app.add_option("--in-features", request.in_features, "where the layout's last column is cut")
      ->check(whole_number());
  app.add_option("--out-features", request.out_features, "where the layout's last row is cut")
      ->check(whole_number());
  app.add_option("--alignment", request.alignment,
                 "bytes that addresses and strides of activations are multiples of: 16, 8, 4 or 2")
      ->capture_default_str();
  app.add_option("--config", request.config, "pins the config, e.g. \"simt tile_n=64 tile_out=4\"");
  app.add_flag(
      "--attached", request.attached,
      "give the layout to the kernel as tables instead of compiling it in: all layouts share one compile");
  app.add_option("--cache-dir", request.cache_dir,
                 "folder of the store (else SPARSEKILN_CACHE_DIR, XDG_CACHE_HOME/sparsekiln, "
                 "~/.cache/sparsekiln)");
}

void add_request(CLI::App& app, Request& request) {
  app.add_option("FILE", request.file,
                 "layout: .npy (2-D bool or integer), .mtx (Matrix Market), .smtx, or text of 0 and 1")
      ->required();
  add_problem(app, request);
  app.add_option(
         "--target", request.target,
         "auto, cpu, cuda, cuda:1, emulated, emulated:sm_80, an architecture (sm_90, sm_80:108) or a part "
         "(h100)")
      ->capture_default_str();
  app.add_flag("--tiered", request.tiered,
               "run attached at once, and baked as soon as that is compiled; compile makes the baked one");
  app.add_option("--pack", request.packs,
                 "a pack, or the folder of a store that others keep, to look in first; may be given again")
      ->allow_extra_args(false);
  app.add_option("--require", request.require,
                 "anything, or prebuilt: never compiles, and fails where no pack holds the kernel")
      ->capture_default_str();
}

}  // namespace sparsekiln::tools
