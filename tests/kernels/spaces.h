#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>
#include <sparsekiln/config.h>

namespace sparsekiln::test {

/// The inputs of a case's second launch; the first has small integers.
enum class Beside : std::uint8_t {
  nothing,  ///< there is no second launch
  random,
  planted,  ///< small integers with Inf and NaN
};

/// x and W, and y.
struct Types {
  DType dtype, out_dtype;
  Math math = Math::ieee;
};

/// Special ways to read operands, and to write y.
struct Loads {
  std::int32_t cut_in = 0;  ///< features that the last block column lacks
  std::int32_t cut_out = 0;
  std::int32_t alignment = 16;  ///< 0: the least that the types allow
  bool block_scales = false;
  Activation derivative = Activation::none;
};

/// The values of every axis for one kernel family. The case list is this data; `validate` excludes
/// combinations. If a family has fewer values of an axis of kShared than others, it has the first ones.
struct Space {
  std::vector<std::int32_t> block_out = {8, 16, 32, 64, 128};
  std::vector<std::int32_t> block_in = {8, 16, 32, 64, 128};
  std::vector<std::int64_t> batches = {1, 7, 8, 9, 15, 17, 64, 2, 13, 31, 100};
  std::vector<std::int32_t> tile_n;
  std::vector<std::string> archs;
  std::vector<std::int32_t> tile_out;
  std::vector<std::int32_t> stages;
  std::vector<std::int32_t> warps;
  std::vector<Types> types;
  std::vector<std::int32_t> workers = {1, 7, 132};
  std::vector<std::int32_t> split = {1, 3};
  std::vector<TableForm> tables;
  std::vector<OperandA> operand_a = {OperandA::x};
  std::vector<std::int32_t> rows = {1};
  std::vector<std::int32_t> merge = {1};
  std::vector<std::int32_t> panels = {0};
  std::vector<std::string> geometries = {"none"};  ///< of convolutions
  std::vector<Operation> operations = {Operation::forward};
  std::vector<ActivationOrder> orders = {ActivationOrder::batch_major};
  std::vector<Epilogue> epilogues = {{}};
  std::vector<Loads> loads = {{}};
  std::vector<bool> packed = {false};
  std::vector<bool> wide = {false, true};
  std::vector<bool> strict_absent = {false, true};
  std::vector<Beside> beside = {Beside::nothing, Beside::random, Beside::planted};
  Variant variant = Variant::simt;
  double most_emulated_work = 1e6;  ///< multiplications of a case on the emulator
};

/// The spaces of a target's families, in the order of CaseArrays.
[[nodiscard]] std::vector<Space> spaces_of(const Target& target);

}  // namespace sparsekiln::test
