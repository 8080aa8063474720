#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sparsekiln/compile.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "compiler/cuda/families.h"
#include "tests/mutations/mutate.h"
#include "tests/mutations/trial.h"
#include "tests/temporary_folder.h"

// Kernels that are wrong on purpose. Each is found, by a report of the emulator or by an oracle: what was not
// found here would not be found in a kernel that is wrong by mistake either.

namespace sparsekiln::test {
namespace {

constexpr int kSeeds = 8;

/// A correct kernel, and the device that it is run on.
struct Subject {
  std::string device;
  Problem problem;
  std::shared_ptr<const Binary> binary;
};

/// Rows that are split, and so long that every stage is filled again; a batch that does not fill its last
/// tile. `inputs`: of the product.
Subject make_subject(DType dtype, BlockShape block, const char* config, Math math = Math::ieee,
                     Operation operation = Operation::forward, Options options = {}, int inputs = 768,
                     std::int64_t batch = 61, int workers = 2) {
  const Layout layout = operation == Operation::forward ? patterns::random(6, inputs / block.in, 0.5, 5)
                                                        : patterns::random(inputs / block.out, 6, 0.5, 5);
  options.operation = operation;
  options.block = block;
  options.batch = batch;
  options.dtype = dtype;
  options.config = parse_config(config);
  const bool hopper = options.overlap_launches || options.config->knobs[0] != 0 ||
                      cuda::on_warpgroups(options.config->variant);
  const std::string arch = hopper ? "sm_90" : "sm_80";
  options.target = arch + ":" + std::to_string(workers);
  options.math = math;
  const TemporaryFolder folder;
  options.cache_dir = folder.path();
  return {"emulated:" + arch, make_problem(layout, options), build(layout, options).binary};
}

/// A subject that is a convolution by variant halo: a tile of an item needs more stages of x than the other,
/// whose columns are far apart. Tiles have no position that is outside of an image.
Subject make_images(const char* config, BlockShape block, Operation operation = Operation::forward,
                    const char* geometry = "kernel=3x3 padding=1 input=8x16") {
  std::vector<std::uint8_t> mask(4 * 9, 0);
  for (const std::size_t row : {0, 1})
    for (const std::size_t column : {0, 1, 2, 3, 4, 5, 6, 8}) mask[row * 9 + column] = 1;
  for (const std::size_t row : {2, 3})
    for (const std::size_t column : {0, 4, 8}) mask[row * 9 + column] = 1;
  const Layout layout = Layout::from_mask(operation == Operation::forward ? 4 : 9,
                                          operation == Operation::forward ? 9 : 4, mask);
  Options options{.block = block, .batch = 2, .dtype = DType::bf16, .operation = operation};
  options.convolution = parse_convolution(geometry);
  options.config = parse_config(config);
  options.target = "sm_90:2";
  const TemporaryFolder folder;
  options.cache_dir = folder.path();
  return {"emulated:sm_90", make_problem(layout, options), build(layout, options).binary};
}

/// Tries up to `most` places for each fault, spread over the kernel; over one of those of the launch, where
/// it is named.
void check_all_caught(const Subject& subject, const std::vector<Fault>& faults, std::size_t most,
                      std::string_view kernel = {}) {
  const TestLaunch unchanged =
      try_out(*subject.binary, subject.problem, subject.binary->ptx, subject.device, 0, kSeeds);
  REQUIRE_MESSAGE(!unchanged.caught, "the kernel as it is: " << unchanged.how);
  for (const Fault fault : faults) {
    const std::vector<Mutation> all = kernel.empty()
                                          ? mutations(subject.binary->ptx, fault)
                                          : mutations_of_kernel(subject.binary->ptx, kernel, fault);
    CHECK_MESSAGE(!all.empty(), "no place for: " << name(fault));
    const std::size_t count = std::min(most, all.size());
    for (std::size_t i = 0; i < count; ++i) {
      const Mutation& mutation = all[i * all.size() / count];
      const TestLaunch trial =
          try_out(*subject.binary, subject.problem, mutation.ptx, subject.device, 0, kSeeds);
      CHECK_MESSAGE(trial.caught, name(mutation.fault)
                                      << " is not found: PTX line " << mutation.line << ", '"
                                      << mutation.before << "' became '" << mutation.after << "'");
    }
  }
}

}  // namespace

TEST_CASE("every fault planted in a simt kernel is found") {
  check_all_caught(make_subject(DType::f32, {32, 32}, "simt tile_n=64 tile_out=4 stages=2 warps=4 split=2"),
                   {Fault::barrier_removed, Fault::wait_count_off_by_one, Fault::wait_removed,
                    Fault::order_removed, Fault::store_of_counter_removed, Fault::copy_address_off,
                    Fault::load_address_off, Fault::global_address_off, Fault::store_address_off,
                    Fault::store_guard_dropped, Fault::multiply_dropped},
                   4);
}

TEST_CASE("every fault planted in a tensor-core kernel is found") {
  check_all_caught(make_subject(DType::f16, {32, 32}, "mma tile_n=64 stages=4 warps=4 split=2"),
                   {Fault::barrier_removed, Fault::wait_count_off_by_one, Fault::wait_removed,
                    Fault::order_removed, Fault::store_of_counter_removed, Fault::copy_address_off,
                    Fault::load_address_off, Fault::global_address_off, Fault::store_address_off,
                    Fault::swizzle_changed, Fault::store_guard_dropped, Fault::fragment_swapped,
                    Fault::accumulator_swapped, Fault::multiply_dropped},
                   3);
}

TEST_CASE("every fault planted in a tensor-core kernel of small blocks is found") {
  check_all_caught(make_subject(DType::bf16, {8, 8}, "mma tile_n=64 stages=4 warps=1 split=4"),
                   {Fault::barrier_removed, Fault::wait_count_off_by_one, Fault::copy_address_off,
                    Fault::load_address_off, Fault::global_address_off, Fault::store_address_off,
                    Fault::fragment_swapped, Fault::accumulator_swapped, Fault::multiply_dropped},
                   3);
}

TEST_CASE("every fault planted in a kernel that streams the weight is found") {
  const auto tensor =
      make_subject(DType::f32, {32, 32}, "stream tile_n=16 stages=4 warps=4 split=8 operand_a=w", Math::tf32);
  check_all_caught(tensor,
                   {Fault::barrier_removed, Fault::wait_count_off_by_one, Fault::wait_removed,
                    Fault::order_removed, Fault::store_of_counter_removed, Fault::copy_address_off,
                    Fault::load_address_off, Fault::global_address_off, Fault::store_address_off,
                    Fault::accumulator_swapped, Fault::multiply_dropped},
                   3);
  check_all_caught(make_subject(DType::f32, {32, 32}, "stream tile_n=16 stages=4 warps=4 split=8"),
                   {Fault::barrier_removed, Fault::wait_count_off_by_one, Fault::wait_removed,
                    Fault::order_removed, Fault::copy_address_off, Fault::load_address_off,
                    Fault::global_address_off, Fault::store_address_off, Fault::multiply_dropped},
                   3);
}

TEST_CASE("every fault planted in a kernel that multiplies what it loads into registers is found") {
  check_all_caught(
      make_subject(DType::f32, {32, 32}, "direct tile_n=16 stages=2 warps=4 split=8", Math::tf32),
      {Fault::barrier_removed, Fault::order_removed, Fault::store_of_counter_removed,
       Fault::global_address_off, Fault::store_address_off, Fault::fragment_swapped,
       Fault::accumulator_swapped, Fault::multiply_dropped},
      3);
  check_all_caught(make_subject(DType::f16, {8, 8}, "direct tile_n=16 stages=1 warps=2 panels=1"),
                   {Fault::grid_wait_removed, Fault::global_address_off, Fault::fragment_swapped,
                    Fault::accumulator_swapped, Fault::multiply_dropped},
                   3);
  check_all_caught(
      make_subject(DType::f16, {64, 32}, "direct tile_n=16 tile_out=16 stages=2 warps=4 split=8", Math::ieee,
                   Operation::grad_input),
      {Fault::barrier_removed, Fault::global_address_off, Fault::store_address_off, Fault::fragment_swapped,
       Fault::accumulator_swapped, Fault::multiply_dropped, Fault::transposition_dropped},
      3);
  check_all_caught(make_subject(DType::bf16, {8, 8}, "direct tile_n=16 stages=1 warps=2"),
                   {Fault::barrier_removed, Fault::global_address_off, Fault::fragment_swapped,
                    Fault::accumulator_swapped, Fault::multiply_dropped},
                   3);
}

TEST_CASE("every fault planted in a tensor-core kernel that reads blocks by columns is found") {
  check_all_caught(make_subject(DType::f16, {64, 32}, "mma tile_n=64 stages=4 warps=4 split=2", Math::ieee,
                                Operation::grad_input),
                   {Fault::barrier_removed, Fault::wait_count_off_by_one, Fault::copy_address_off,
                    Fault::load_address_off, Fault::global_address_off, Fault::store_address_off,
                    Fault::swizzle_changed, Fault::fragment_swapped, Fault::accumulator_swapped,
                    Fault::transposition_dropped, Fault::exchange_dropped, Fault::multiply_dropped},
                   3);
  check_all_caught(
      make_subject(DType::f32, {32, 64}, "mma tile_n=32 stages=3 warps=2", Math::tf32, Operation::grad_input),
      {Fault::copy_address_off, Fault::load_address_off, Fault::global_address_off, Fault::swizzle_changed,
       Fault::multiply_dropped},
      3);
}

/// The faults of every kernel of the copy engine and wgmma, and `more`.
std::vector<Fault> faults_of_wgmma(std::initializer_list<Fault> more) {
  std::vector<Fault> faults = {Fault::product_fence_removed,  Fault::product_wait_off_by_one,
                               Fault::product_commit_removed, Fault::expected_bytes_off,
                               Fault::phase_changed,          Fault::arrival_removed,
                               Fault::arrivals_off,           Fault::box_off,
                               Fault::registers_kept,         Fault::store_address_off,
                               Fault::accumulator_swapped,    Fault::phase_not_awaited,
                               Fault::product_wait_removed,   Fault::product_dropped};
  faults.insert(faults.end(), more);
  return faults;
}

TEST_CASE("every fault planted in a kernel of the copy engine and wgmma is found") {
  const std::vector<Fault> faults = faults_of_wgmma({Fault::order_removed});
  check_all_caught(make_subject(DType::f16, {64, 64}, "wgmma tile_n=128 warps=12 stages=3 split=2"), faults,
                   4);
  check_all_caught(make_subject(DType::bf16, {64, 64}, "wgmma tile_n=128 warps=12 stages=3 rows=2"),
                   {Fault::arrival_removed, Fault::phase_changed, Fault::product_wait_off_by_one}, 6);
  // Where CUDA cores add products to sums.
  check_all_caught(make_subject(DType::e4m3, {64, 64}, "wgmma tile_n=128 warps=12 stages=3"),
                   {Fault::product_fence_removed, Fault::product_wait_off_by_one, Fault::product_wait_removed,
                    Fault::product_commit_removed, Fault::product_dropped, Fault::arrival_removed,
                    Fault::accumulator_swapped},
                   4);
  check_all_caught(make_subject(DType::f16, {64, 64}, "wgmma tile_n=128 warps=12 stages=6 cluster=2"),
                   {Fault::arrival_removed, Fault::arrivals_off, Fault::multicast_dropped,
                    Fault::expected_bytes_off, Fault::cluster_left_early},
                   6);
  // A batch with rows in the share of either CTA.
  check_all_caught(make_subject(DType::f16, {64, 64}, "wgmma tile_n=128 warps=12 stages=3 cluster_rows=2",
                                Math::ieee, Operation::forward, {}, 768, 125),
                   {Fault::arrival_removed, Fault::arrivals_off, Fault::multicast_dropped, Fault::box_off,
                    Fault::expected_bytes_off, Fault::phase_changed, Fault::product_wait_off_by_one,
                    Fault::cluster_left_early},
                   6);
  check_all_caught(make_subject(DType::f16, {128, 64}, "wgmma tile_n=128 warps=12 stages=3", Math::ieee,
                                Operation::grad_input),
                   {Fault::exchange_dropped, Fault::box_off, Fault::store_address_off}, 3);
}

TEST_CASE("every fault planted in a kernel of halo is found") {
  std::vector<Fault> faults = faults_of_wgmma({Fault::transposition_dropped});
  // Some waits of the producers are of rings that this subject fills only once: those are in random problems.
  std::erase(faults, Fault::phase_not_awaited);
  check_all_caught(make_images("halo tile_n=64 warps=12 stages=2 rows=2 merge=2 in_flight=1", {32, 64}),
                   faults, 3);
  check_all_caught(
      make_images("halo tile_n=64 warps=12 stages=2 rows=2 merge=2 in_flight=1 split=4", {32, 64}),
      {Fault::order_removed, Fault::store_of_counter_removed}, 1);
  check_all_caught(make_images("halo tile_n=64 warps=12 stages=2 rows=2 merge=2 in_flight=1", {64, 32},
                               Operation::grad_input),
                   {Fault::exchange_dropped, Fault::box_off}, 2);
  const char* const strides = "kernel=3x3 stride=2 padding=1 input=16x32";
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    check_all_caught(
        make_images("halo tile_n=64 warps=12 stages=2 rows=2 merge=1", {64, 64}, operation, strides),
        {Fault::box_off, Fault::expected_bytes_off, Fault::store_address_off}, 2);
}

TEST_CASE("every fault planted in a gradient of the weight by halo is found") {
  const auto subject = [](const char* config, std::int64_t images, int workers, Options options = {}) {
    const Layout layout = patterns::random(3, 4, 0.6, 5);
    options.block = {32, 32};
    options.batch = images;
    options.dtype = DType::bf16;
    options.operation = Operation::grad_weight;
    options.convolution = parse_convolution("kernel=3x3 padding=1 input=8x16");
    options.config = parse_config(config);
    options.target = "sm_90:" + std::to_string(workers);
    const TemporaryFolder folder;
    options.cache_dir = folder.path();
    return Subject{"emulated:sm_90", make_problem(layout, options), build(layout, options).binary};
  };
  check_all_caught(subject("halo tile_n=32 warps=16 stages=2 rows=12", 2, 2, {.epilogue = {.scale = true}}),
                   faults_of_wgmma({Fault::transposition_dropped, Fault::exchange_dropped}), 3);
  // Slices of the tiles are added by a kernel after it.
  check_all_caught(subject("halo tile_n=32 warps=16 stages=3 rows=42", 8, 8),
                   {Fault::store_address_off, Fault::box_off}, 3);
}

TEST_CASE("every fault planted in a kernel of the copy engine and wgmma whose layout is attached is found") {
  const Options attached = {.specialization = Specialization::attached};
  const auto subject = [&](const char* config, std::int64_t batch = 61) {
    return make_subject(DType::f16, {64, 64}, config, Math::ieee, Operation::forward, attached, 768, batch);
  };
  check_all_caught(subject("wgmma tile_n=128 warps=12 stages=3 split=2 table=attached"),
                   faults_of_wgmma({Fault::order_removed}), 2);
  check_all_caught(subject("wgmma tile_n=128 warps=12 stages=6 rows=2 cluster=2 table=attached", 200),
                   {Fault::arrival_removed, Fault::arrivals_off, Fault::multicast_dropped,
                    Fault::phase_changed, Fault::expected_bytes_off, Fault::cluster_left_early},
                   3);
  check_all_caught(subject("wgmma tile_n=128 warps=12 stages=3 cluster_rows=2 table=attached", 125),
                   {Fault::arrival_removed, Fault::arrivals_off, Fault::multicast_dropped, Fault::box_off},
                   4);
}

TEST_CASE("every fault planted in a kernel whose warpgroups have block rows of their own is found") {
  const auto subject = [](BlockShape block, const char* numbers, Operation operation = Operation::forward,
                          Options options = {}) {
    const std::string config = fmt::format("wgmma_rows operand_a=w {}", numbers);
    return make_subject(DType::f16, block, config.c_str(), Math::ieee, operation, options);
  };
  // Outputs are stored four bytes at a time, by the store that keeps counters as well.
  std::vector<Fault> faults = faults_of_wgmma({});
  std::erase(faults, Fault::store_address_off);
  check_all_caught(subject({64, 64}, "tile_n=128 warps=16 stages=3 rows=3"), faults, 4);
  // The first sums are of rows that the batch has.
  check_all_caught(subject({64, 64}, "tile_n=128 warps=12 stages=3 rows=2"), {Fault::exchange_dropped}, 1);
  // Each line has blocks for both warpgroups: none is given back for one that lacks them.
  check_all_caught(subject({16, 16}, "tile_n=128 warps=12 stages=3 rows=2 merge=4 cluster=2"),
                   {Fault::arrivals_off, Fault::multicast_dropped, Fault::expected_bytes_off,
                    Fault::phase_changed, Fault::box_off, Fault::cluster_left_early},
                   6);
  check_all_caught(subject({32, 32}, "tile_n=128 warps=12 stages=2 rows=2 merge=2", Operation::grad_input),
                   {Fault::transposition_dropped, Fault::box_off}, 3);
  check_all_caught(subject({64, 64}, "tile_n=128 warps=16 stages=3 rows=3 table=attached", Operation::forward,
                           {.specialization = Specialization::attached}),
                   {Fault::arrival_removed, Fault::arrivals_off, Fault::phase_changed, Fault::box_off}, 4);
}

TEST_CASE("every fault planted in a gradient of the weight by the copy engine and wgmma is found") {
  const Options options = {.epilogue = {.scale = true}, .bias_gradient = true};
  const std::vector<Fault> faults = faults_of_wgmma({Fault::transposition_dropped, Fault::exchange_dropped});
  check_all_caught(make_subject(DType::f16, {64, 64}, "wgmma tile_n=64 warps=12 stages=3 rows=2", Math::ieee,
                                Operation::grad_weight, options),
                   faults, 4);
  check_all_caught(make_subject(DType::bf16, {128, 64}, "wgmma tile_n=64 warps=12 stages=2", Math::ieee,
                                Operation::grad_weight),
                   {Fault::arrival_removed, Fault::phase_changed, Fault::box_off,
                    Fault::product_wait_off_by_one, Fault::accumulator_swapped, Fault::transposition_dropped},
                   4);
}

TEST_CASE("every fault planted in a gradient of the weight whose CTAs sum many blocks is found") {
  const Options options = {.epilogue = {.scale = true}, .bias_gradient = true};
  const std::vector<Fault> faults = faults_of_wgmma({Fault::transposition_dropped, Fault::exchange_dropped});
  check_all_caught(make_subject(DType::f16, {64, 64}, "grouped tile_n=32 warps=16 stages=3 rows=12",
                                Math::ieee, Operation::grad_weight, options),
                   faults, 4);
  // Slices of the batch are combined.
  check_all_caught(make_subject(DType::bf16, {64, 64}, "grouped tile_n=32 warps=16 stages=4 rows=12",
                                Math::ieee, Operation::grad_weight, {}, 768, 600, 16),
                   {Fault::product_wait_off_by_one, Fault::order_removed, Fault::store_of_counter_removed,
                    Fault::phase_changed, Fault::barrier_removed, Fault::store_address_off},
                   3);
}

TEST_CASE("every fault planted in a kernel of the gradient of the weight is found") {
  const auto tensor = make_subject(DType::f16, {32, 32}, "mma tile_n=32 tile_out=0 stages=3 warps=4 rows=2",
                                   Math::ieee, Operation::grad_weight);
  check_all_caught(tensor,
                   {Fault::barrier_removed, Fault::wait_count_off_by_one, Fault::wait_removed,
                    Fault::copy_address_off, Fault::load_address_off, Fault::global_address_off,
                    Fault::store_address_off, Fault::swizzle_changed, Fault::fragment_swapped,
                    Fault::accumulator_swapped, Fault::multiply_dropped, Fault::transposition_dropped},
                   3);
  const auto simt = make_subject(DType::f32, {32, 32}, "simt tile_n=16 tile_out=4 stages=3 warps=8 rows=2",
                                 Math::ieee, Operation::grad_weight);
  check_all_caught(
      simt,
      {Fault::barrier_removed, Fault::wait_count_off_by_one, Fault::copy_address_off, Fault::load_address_off,
       Fault::global_address_off, Fault::store_address_off, Fault::multiply_dropped},
      3);
}

TEST_CASE("every fault planted in a kernel that normalises is found") {
  // Two warps share a row.
  const Options options = {.epilogue = parse_epilogue("layer_norm+multiply+add+relu")};
  check_all_caught(
      make_subject(DType::f16, {128, 32}, "mma tile_n=64 stages=3 warps=4", Math::ieee, Operation::forward,
                   options),
      {Fault::barrier_removed, Fault::exchange_dropped, Fault::store_address_off, Fault::multiply_dropped}, 4,
      "sparsekiln_normalise_0");
  const Options cell = {.epilogue = parse_epilogue("layer_norm+lstm+residual")};
  check_all_caught(make_subject(DType::f16, {64, 32}, "mma tile_n=64 stages=4 warps=4", Math::ieee,
                                Operation::grad_input, cell),
                   {Fault::barrier_removed, Fault::exchange_dropped}, 4, "sparsekiln_normalise_0");
}

TEST_CASE("features beyond an edge that are read, and block scales that do nothing, are found") {
  const Options edges = {.in_features = 765, .out_features = 187};
  check_all_caught(make_subject(DType::f16, {32, 32}, "mma tile_n=64 stages=4 warps=4 split=2", Math::ieee,
                                Operation::forward, edges),
                   {Fault::edge_guard_dropped, Fault::store_guard_dropped}, 6);
  check_all_caught(make_subject(DType::f32, {32, 32}, "simt tile_n=64 tile_out=4 stages=2 warps=4 split=2",
                                Math::ieee, Operation::forward, edges),
                   {Fault::edge_guard_dropped}, 6);
  const Options block_scales = {.block_scales = true};
  // Rows so long that block scales are loaded again in the main loop, by one of the workers also before it.
  for (const auto& [block, inputs] : {std::pair{BlockShape{8, 8}, 1728}, {BlockShape{64, 64}, 4096}})
    check_all_caught(make_subject(DType::f16, block, "mma tile_n=64 stages=3 warps=2", Math::ieee,
                                  Operation::forward, block_scales, inputs),
                     {Fault::block_scale_ignored, Fault::scale_dropped}, 4);
  check_all_caught(make_subject(DType::f32, {32, 32}, "simt tile_n=64 tile_out=4 stages=2 warps=4",
                                Math::ieee, Operation::grad_input, block_scales, 2016),
                   {Fault::block_scale_ignored, Fault::scale_dropped}, 4);
  for (const BlockShape block : {BlockShape{8, 8}, {32, 32}})
    check_all_caught(make_subject(DType::f16, block, "direct tile_n=16 stages=1 warps=2", Math::ieee,
                                  Operation::forward, block_scales),
                     {Fault::block_scale_ignored, Fault::scale_dropped}, 4);
}

TEST_CASE(
    "launches that overlap and do not wait are found, also where only launches further apart conflict") {
  const Options overlaps = {.overlap_launches = true};
  for (const char* const config : {"mma tile_n=64 stages=3 warps=2", "mma tile_n=64 stages=3 warps=2 split=2",
                                   "direct tile_n=16 stages=1 warps=4", "stream tile_n=16 stages=4 warps=4"})
    check_all_caught(make_subject(DType::f16, {32, 32}, config, Math::ieee, Operation::forward, overlaps),
                     {Fault::grid_wait_removed, Fault::grid_trigger_early}, 1);
  // The pass that copies x, and the product after it.
  check_all_caught(make_subject(DType::f16, {8, 8}, "direct tile_n=16 stages=1 warps=4 panels=1", Math::ieee,
                                Operation::forward, overlaps),
                   {Fault::grid_wait_removed, Fault::grid_trigger_early}, 2);
  check_all_caught(make_subject(DType::f32, {32, 32}, "simt tile_n=64 tile_out=4 stages=1 warps=4",
                                Math::ieee, Operation::grad_input, overlaps),
                   {Fault::grid_wait_removed, Fault::grid_trigger_early}, 1);
  check_all_caught(make_subject(DType::f16, {32, 32}, "mma tile_n=32 tile_out=0 stages=3 warps=4 rows=2",
                                Math::ieee, Operation::grad_weight, overlaps),
                   {Fault::grid_wait_removed, Fault::grid_trigger_early}, 1);
  check_all_caught(make_subject(DType::f16, {128, 64}, "wgmma tile_n=64 stages=3 warps=12", Math::ieee,
                                Operation::grad_weight, overlaps),
                   {Fault::grid_wait_removed, Fault::grid_trigger_early}, 1);
}

TEST_CASE("tf32 operands that are truncated instead of rounded are found") {
  const Subject subject =
      make_subject(DType::f32, {32, 32}, "mma tile_n=64 stages=4 warps=4 split=2", Math::tf32);
  check_all_caught(subject, {Fault::rounding_dropped}, 100);
}

}  // namespace sparsekiln::test
