#pragma once

#include <cstdint>
#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/config.h>
#include <sparsekiln/error.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "compiler/cuda/resources.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/cuda/wgmma_shape.h"

// What tests of the families of variant wgmma share.

namespace sparsekiln::cuda {

inline const Target kHopper{Target::Kind::cuda, "sm_90", 6};

inline Config wgmma_config(std::int32_t tile_n, std::int32_t stages, std::int32_t rows = 1,
                           std::int32_t merge = 1) {
  Config config;
  config.variant = Variant::wgmma;
  config.tile_n = tile_n;
  config.stages = stages;
  config.warps = kWgmmaWarps;
  config.rows = rows;
  config.merge = merge;
  return config;
}

/// Why a Problem or an Sddmm is refused; empty where it is not.
template <class Computed>
std::string refusal(const Computed& computed, const Target& target, const Config& config) {
  try {
    validate(computed, target, config);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return {};
}

/// Compiles one entry and checks what every kernel must keep: no spills, and no message of ptxas that it had
/// to wait for products, or to ignore registers that warpgroups exchange (C7508 to C7519).
/// `registers`: of a thread as it is launched, which its warpgroups then share out.
inline Resources compiled_clean(const Source& source, std::int32_t registers = 168) {
  const NvrtcOutput output = find_nvrtc()->compile(source.text, "sm_90a");
  const Resources resources = read_resources(output.cubin, source.entries.front().passes.front(), output.log);
  CHECK(resources.spill_load_bytes == 0);
  CHECK(resources.spill_store_bytes == 0);
  CHECK(resources.stack_bytes == 0);
  CHECK(resources.registers == registers);
  CHECK(output.log.find("warning") == std::string::npos);
  CHECK(output.log.find("C75") == std::string::npos);
  CHECK(output.ptx.find(".target sm_90a") != std::string::npos);
  return resources;
}

}  // namespace sparsekiln::cuda
