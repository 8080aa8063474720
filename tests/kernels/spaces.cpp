#include "tests/kernels/spaces.h"

#include <cmath>

#include "compiler/cpu_levels.h"
#include "compiler/element.h"

namespace sparsekiln::test {
namespace {

/// The levels that this host runs, the highest one last.
std::vector<std::string> host_levels(const std::string& best) {
  std::vector<std::string> levels;
  for (const cpu::Level& level : cpu::levels())
    if (level.name != "generic" && cpu::runs(best, level.name)) levels.emplace_back(level.name);
  if (levels.empty()) return {best};
  return levels;
}

/// Each part alone, and together with the others. The first one is empty, the second is the one that
/// gradients have, too.
std::vector<Epilogue> all_epilogues() {
  return {{},
          {.scale = true},
          {.bias = true},
          {.activation = Activation::relu},
          {.bias = true, .activation = Activation::gelu},
          {.activation = Activation::gelu_tanh},
          {.scale = true, .activation = Activation::silu},
          {.residual = true},
          {.scale = true, .bias = true, .residual = true},
          {.scale = true, .bias = true, .activation = Activation::relu, .residual = true}};
}
/// Epilogues with two weights, and with four, last.
std::vector<Epilogue> all_and_glu_epilogues() {
  std::vector<Epilogue> epilogues = all_epilogues();
  epilogues.push_back({.activation = Activation::silu, .glu = true});
  epilogues.push_back(
      {.scale = true, .bias = true, .activation = Activation::gelu, .glu = true, .residual = true});
  epilogues.push_back({.lstm = true});
  epilogues.push_back({.lstm = true, .keep = true});
  return epilogues;
}

/// With layer normalisations. The last is a gradient's, where there are any.
std::vector<Epilogue> with_normalisations(std::vector<Epilogue> epilogues, bool gradients = true) {
  epilogues.push_back({.layer_norm = true});
  epilogues.push_back({.activation = Activation::relu, .layer_norm = true, .multiply = true, .add = true});
  epilogues.push_back({.lstm = true, .layer_norm = true, .multiply = true});
  if (gradients) epilogues.push_back({.residual = true, .lstm = true, .layer_norm = true});
  return epilogues;
}

Space vector_space(const Target& target) {
  Space space;
  space.variant = Variant::vector;
  space.archs = host_levels(target.arch);
  space.tile_n = {1, 2, 4, 16, 32, 48, 64, 128};
  space.tile_out = {0, 1, 3, 8};
  space.stages = {1};
  space.warps = {1};
  space.types = {{DType::f32, DType::f32},
                 {DType::bf16, DType::bf16},
                 {DType::bf16, DType::f32},
                 {DType::f16, DType::f16},
                 {DType::f16, DType::f32}};
  space.tables = {TableForm::constant};
  space.packed = {false, true};
  space.epilogues = with_normalisations(all_and_glu_epilogues());
  space.operations = {Operation::forward, Operation::grad_input};
  space.orders = {ActivationOrder::batch_major, ActivationOrder::feature_major};
  return space;
}

/// The types that plain passes compute with, which have fewer choices.
Space plain_space(const Target& target) {
  Space space = vector_space(target);
  space.tile_n = {1, 2, 4, 8, 16, 32, 64};
  space.tile_out = {0};
  space.packed = {false};
  space.types.clear();
  for (const Element& element : elements()) {
    if (element.cpu != CpuPasses::plain || element.forward_only) continue;
    space.types.push_back({element.value, element.value});
    if (element.arithmetic != element.value) space.types.push_back({element.value, element.arithmetic});
  }
  return space;
}

/// Each alone, and together. The first three are those of `stream`, the first five and derivatives those of
/// `direct`.
std::vector<Loads> all_loads() {
  return {{},
          {.cut_in = 8, .cut_out = 5},
          {.cut_in = 8, .cut_out = 8},
          {.block_scales = true},
          {.cut_in = 40, .cut_out = 40, .block_scales = true},
          {.cut_in = 3, .cut_out = 5},
          {.cut_in = 7, .cut_out = 1, .alignment = 0},
          {.alignment = 8},
          {.block_scales = true},
          {.cut_in = 2, .cut_out = 6, .alignment = 8, .block_scales = true},
          {.derivative = Activation::relu},
          {.cut_in = 1, .cut_out = 3, .alignment = 0, .block_scales = true, .derivative = Activation::gelu}};
}

/// Without it there are at most two stages: values that never fit only slow the search for cases down.
bool has_async_copy(const Target& target) { return target.compute_capability() >= 80; }

/// bf16 and tf32.
bool has_tensor_core_types(const Target& target) { return target.compute_capability() >= 80; }

Space simt_space(const Target& target) {
  Space space;
  space.variant = Variant::simt;
  space.loads = all_loads();
  space.epilogues = with_normalisations(all_and_glu_epilogues());
  space.archs = {target.arch};
  space.tile_n = {8, 16, 40, 64, 128};
  space.tile_out = {1, 2, 4, 8};
  space.stages = {1, 2};
  if (has_async_copy(target)) space.stages.insert(space.stages.end(), {3, 4});
  space.warps = {1, 2, 4, 8};
  space.types = {{DType::f32, DType::f32}};
  space.operations = {Operation::forward, Operation::grad_input};
  space.orders = {ActivationOrder::batch_major, ActivationOrder::feature_major};
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  return space;
}

Space mma_space(const Target& target) {
  Space space;
  space.variant = Variant::mma;
  space.loads = all_loads();
  space.epilogues = with_normalisations(all_and_glu_epilogues());
  space.archs = {target.arch};
  space.tile_n = {8, 16, 24, 64, 128};
  space.tile_out = {0, 8, 16, 32};
  space.stages = {1, 2};
  if (has_async_copy(target)) space.stages.insert(space.stages.end(), {3, 6});
  space.warps = {1, 2, 3, 8};
  space.types = {{DType::f16, DType::f16}, {DType::f16, DType::f32}};
  if (has_tensor_core_types(target))
    space.types.insert(
        space.types.end(),
        {{DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f32, DType::f32, Math::tf32}});
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  space.operations = {Operation::forward, Operation::grad_input};
  space.orders = {ActivationOrder::batch_major, ActivationOrder::feature_major};
  space.operand_a = {OperandA::x, OperandA::w};
  space.rows = {1, 2, 3, 4};
  space.merge = {1, 2, 4};
  return space;
}

Space stream_space(const Target& target) {
  Space space;
  space.variant = Variant::stream;
  space.epilogues = with_normalisations(all_and_glu_epilogues(), false);
  space.loads = all_loads();
  space.loads.resize(3);
  space.batches.resize(7);
  space.archs = {target.arch};
  space.tile_n = {8, 16, 32};
  space.tile_out = {0, 8, 16};
  space.stages = {2, 3, 5, 8};
  space.warps = {1, 2, 4, 8, 16};
  space.types = {{DType::f32, DType::f32}, {DType::f16, DType::f16}, {DType::f16, DType::f32}};
  if (has_tensor_core_types(target))
    space.types.insert(
        space.types.end(),
        {{DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f32, DType::f32, Math::tf32}});
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  space.operand_a = {OperandA::x, OperandA::w};
  return space;
}

/// Chunks of a warp in registers: one or two.
Space direct_space(const Target& target) {
  Space space = stream_space(target);
  space.variant = Variant::direct;
  space.epilogues = with_normalisations(all_and_glu_epilogues());
  space.tile_n = {8, 16, 32, 64};
  space.loads = all_loads();
  space.loads.resize(5);
  space.loads.push_back({.derivative = Activation::relu});
  space.loads.push_back({.cut_in = 8, .cut_out = 8, .block_scales = true, .derivative = Activation::gelu});
  space.stages = {1, 2};
  space.panels = {0, 1};
  space.operations = {Operation::forward, Operation::grad_input};
  std::erase_if(space.types,
                [](const auto& type) { return type.dtype == DType::f32 && type.math == Math::ieee; });
  return space;
}

/// Its tiles are large, but the emulator multiplies them quickly.
Space wgmma_space(const Target& target) {
  Space space;
  space.variant = Variant::wgmma;
  space.block_out = {64, 128};
  space.block_in = {64, 128};
  space.epilogues = all_and_glu_epilogues();
  space.epilogues.resize(space.epilogues.size() - 2);
  space.archs = {target.arch};
  space.tile_n = {128, 256};
  space.tile_out = {0};
  space.stages = {2, 3, 5};
  space.warps = {12};
  space.types = {{DType::f16, DType::f16},
                 {DType::f16, DType::f32},
                 {DType::bf16, DType::bf16},
                 {DType::bf16, DType::f32},
                 {DType::f32, DType::f32, Math::tf32}};
  space.tables = {TableForm::constant, TableForm::global};
  space.operations = {Operation::forward, Operation::grad_input};
  space.rows = {1, 2, 4};
  space.merge = {1, 2, 4};
  space.most_emulated_work = HUGE_VAL;
  return space;
}

/// Warpgroups have block rows of their own: as many block rows are merged as fill 64 outputs.
Space wgmma_rows_space(const Target& target) {
  Space space = wgmma_space(target);
  space.variant = Variant::wgmma_rows;
  space.block_out = {16, 32, 64};
  space.block_in = {16, 32, 64};
  std::erase_if(space.epilogues, [](const Epilogue& epilogue) { return epilogue.glu; });
  std::erase_if(space.types, [](const auto& type) { return type.dtype == DType::f32; });
  space.stages = {2, 3, 4};
  space.warps = {12, 16};
  space.operand_a = {OperandA::w};
  space.rows = {2, 3};
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  return space;
}

/// Convolutions of small images, whose tiles are larger.
Space halo_space(const Target& target) {
  Space space = wgmma_space(target);
  space.variant = Variant::halo;
  space.block_out = {32, 64, 128};
  space.block_in = {32, 64, 128};
  space.batches.resize(3);
  space.epilogues = {{},
                     {.bias = true, .activation = Activation::gelu},
                     {.residual = true},
                     {.scale = true, .bias = true, .activation = Activation::relu, .residual = true}};
  std::erase_if(space.types, [](const auto& type) { return type.dtype == DType::f32; });
  space.tile_n = {64, 112, 224, 256};
  space.stages = {2, 3, 4};
  space.rows = {1, 2};
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  space.geometries = {"kernel=3x3 padding=1 input=9x10", "kernel=3x3 stride=2 padding=1 input=17x9",
                      "kernel=5 stride=1 padding=2 dilation=2 input=21",
                      "kernel=2x3x3 stride=2x1x2 padding=1 input=3x5x9"};
  space.most_emulated_work = 5e7;
  return space;
}

}  // namespace

std::vector<Space> spaces_of(const Target& target) {
  if (target.kind == Target::Kind::cpu) return {vector_space(target), plain_space(target)};
  std::vector<Space> spaces{simt_space(target), mma_space(target), stream_space(target),
                            direct_space(target)};
  if (target.compute_capability() == 90) {
    spaces.push_back(wgmma_space(target));
    spaces.push_back(wgmma_rows_space(target));
    spaces.push_back(halo_space(target));
  }
  return spaces;
}

}  // namespace sparsekiln::test
