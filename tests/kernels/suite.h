#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "oracle/spmm_check.h"
#include "runtime/device.h"

namespace sparsekiln::test {

/// The elements of x and W, and how f32 is multiplied. y has the same type.
struct Precision {
  DType dtype = DType::f32;
  Math math = Math::ieee;
  /// "f16", "tf32" …
  [[nodiscard]] std::string to_string() const;
};

/// The device that this run of the program tests, named on the command line, and a store of its own.
class Suite {
 public:
  /// Throws `driver` if there is no such device. Runs every `every`th case of the case list.
  Suite(const std::string& target, std::size_t every);
  ~Suite();
  Suite(const Suite&) = delete;
  Suite& operator=(const Suite&) = delete;

  /// The object that main created.
  [[nodiscard]] static const Suite& current();

  [[nodiscard]] const std::shared_ptr<const Device>& device() const { return device_; }
  [[nodiscard]] bool on_cpu() const { return device_->target().kind == Target::Kind::cpu; }
  [[nodiscard]] std::size_t every() const { return every_; }
  /// The store. It is empty when the suite starts and removed with it, unless `keep_store` names another one;
  /// on the cpu also unless SPARSEKILN_TEST_STORE does.
  [[nodiscard]] const std::filesystem::path& cache_dir() const { return cache_dir_; }
  /// A folder that is empty when the suite starts and removed with it.
  [[nodiscard]] const std::filesystem::path& scratch() const { return scratch_; }
  /// From now on uses the store in `folder`, which is kept.
  void keep_store(std::filesystem::path folder);
  /// From now on uses an empty store.
  void take_empty_store();
  /// A request for this device and this store.
  [[nodiscard]] Options options(BlockShape block, Batch batch, Precision precision = {}) const;
  /// All precisions that the device computes, so that every kernel family is used.
  [[nodiscard]] std::vector<Precision> precisions() const;
  /// Whether kernels for this type share a row of blocks among workers; plain passes do not.
  [[nodiscard]] static bool splits_rows(const Precision& precision);
  /// The same options with the default config of the layout's fixed batch, except that rows are split
  /// wherever balance asks for it. On the cpu as they are.
  [[nodiscard]] Options with_splits(Options options, const Layout& layout) const;
  /// The device's architecture with another number of workers: many workers cause rows to be split.
  [[nodiscard]] std::string target_with(std::int32_t workers) const;
  /// Another architecture that the device runs, with so many workers, in the form of Options::target.
  [[nodiscard]] std::string target_of(const std::string& arch, std::int32_t workers) const;

  [[nodiscard]] bool emulated() const { return !prefix_.empty(); }
  /// Whether all combinations are run: SPARSEKILN_TEST_FULL=1 (`./dev test --full`).
  [[nodiscard]] static bool full();
  /// Whether pairs replace all combinations: on the emulator, unless everything is asked for.
  [[nodiscard]] bool only_pairs() const { return emulated() && !full(); }
  /// How many launches are compared bit by bit: twenty, or one more than the emulator has seeds, which decide
  /// all differences between two of its launches.
  [[nodiscard]] std::size_t repeats() const { return only_pairs() ? 4 : 20; }
  /// Selects the seed on the emulator that orders the launches from now on: seeds 0 and 1, and one that
  /// changes every day (SPARSEKILN_TEST_SEED names another). Returns a text about it for a report; empty on
  /// other devices.
  std::string take_seed(std::size_t turn) const;
  [[nodiscard]] static std::uint64_t seed_of_today();

 private:
  std::string prefix_;  ///< of a target, so that it means this device: "emulated:", or nothing
  std::shared_ptr<const Device> device_;
  std::size_t every_;
  std::filesystem::path cache_dir_;
  std::filesystem::path scratch_;
};

/// Copies inputs and poison (or what y held before) to the device, launches, and copies y back into `output`.
/// The workspace is the device's memory.
void launch(const Kernel& kernel, const Problem& problem, const HostInputs& inputs, PoisonedOutput& output,
            std::span<std::byte> workspace = {});

/// The bytes of y after a launch, poison included.
[[nodiscard]] std::vector<std::byte> image_of_run(const Kernel& kernel, const Problem& problem,
                                                  const HostInputs& inputs);

/// Launches with the given kind of inputs and checks y; `padding` elements are between the rows of x and of
/// y.
[[nodiscard]] CheckResult launch_and_check(const Kernel& kernel, const Problem& problem,
                                           const HostInputs& inputs, std::int64_t padding = 0);

}  // namespace sparsekiln::test
