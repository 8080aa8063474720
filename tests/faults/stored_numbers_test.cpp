// Entries whose checksum is right and whose numbers are not: whatever was changed, an entry is refused, or
// what is launched is right.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "compiler/attach.h"
#include "compiler/bytes.h"
#include "compiler/compression.h"
#include "runtime/build.h"
#include "runtime/isolated.h"
#include "runtime/open_device.h"
#include "runtime/request.h"
#include "runtime/stored_binary.h"
#include "runtime/stores.h"
#include "runtime/test_launch.h"
#include "tests/temporary_folder.h"

using namespace sparsekiln;

namespace {

/// SPARSEKILN_TEST_FULL=1 (`./dev test --full`)
bool full() {
  const char* const value = std::getenv("SPARSEKILN_TEST_FULL");
  return value != nullptr && std::string(value) == "1";
}

/// A config whose kernels copy x by tensor maps.
constexpr const char* kWgmma = "wgmma tile_n=128 stages=2 warps=12";

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A kernel, as a store has it.
struct Stored {
  const char* name;
  BuildJob job;
  cache::Identity identity;
  Binary binary;
  std::vector<std::byte> payload;
  std::vector<Range> metadata;  ///< all of the payload but machine code and PTX; what comes first most often
  std::unique_ptr<const TestLaunch> launch;
};

/// Where a payload has `part`, which it compresses.
template <class Bytes>
Range find(const std::vector<std::byte>& payload, const Bytes& part) {
  ByteWriter compressed;
  put_compressed(compressed, std::as_bytes(std::span(part)));
  const std::vector<std::byte> bytes = std::move(compressed).take();
  const auto at = std::search(payload.begin(), payload.end(), bytes.begin(), bytes.end());
  REQUIRE(at != payload.end());
  const auto begin = static_cast<std::size_t>(at - payload.begin());
  return {begin, begin + bytes.size()};
}

Stored stored(const char* name, const Layout& layout, Options options, std::int64_t n) {
  static const test::TemporaryFolder folder;
  options.cache_dir = folder.path();
  Stored stored{.name = name,
                .job = job_of(layout, options),
                .identity = {},
                .binary = {},
                .payload = {},
                .metadata = {},
                .launch = {}};
  const BuildJob& job = stored.job;
  stored.identity = identity_of(job.problem, job.target, job.plan);
  stored.binary = *build_without_layout(job).binary;
  const Binary& binary = stored.binary;
  stored.payload = serialize_binary(stored.identity, binary);
  const Range code = find(stored.payload, binary.code);
  stored.metadata = {{0, code.begin}, {0, code.begin}, {0, code.begin}};
  std::size_t end_of_code = code.end;
  if (!binary.ptx.empty()) {
    const Range ptx = find(stored.payload, binary.ptx);
    stored.metadata.push_back({code.end, ptx.begin});  // data
    end_of_code = ptx.end;
  }
  stored.metadata.push_back({end_of_code, stored.payload.size()});
  stored.launch = make_test_launch(job.problem, {.n = n}, Inputs::small_integers, 1);
  return stored;
}

/// One for each sort of numbers that recipes have.
std::vector<Stored> stored_kernels() {
  const Layout layout = patterns::random(2, 24, 0.7, 5);
  constexpr const char* kTarget = "sm_80:12";
  std::vector<Stored> all;
  const auto attached = Specialization::attached;
  all.push_back(stored("split rows", layout, {.block = {16, 16}, .batch = 9, .target = kTarget}, 9));
  all.push_back(stored("attached", layout,
                       {.block = {16, 16}, .batch = 9, .target = kTarget, .specialization = attached}, 9));
  all.push_back(
      stored("dynamic", layout, {.block = {16, 16}, .batch = Batch::up_to(100), .target = kTarget}, 40));
  all.push_back(stored("tables as data", patterns::random(64, 64, 0.5, 2),
                       {.block = {8, 8}, .batch = 8, .target = kTarget}, 8));
  all.push_back(stored("tensor maps", patterns::random(4, 4, 0.5, 3),
                       {.block = {64, 64},
                        .batch = 128,
                        .dtype = DType::f16,
                        .target = "sm_90:12",
                        .config = parse_config(kWgmma)},
                       128));
  all.push_back(
      stored("gradient of the weight", layout,
             {.block = {16, 16}, .batch = 40, .operation = Operation::grad_weight, .target = kTarget}, 40));
  all.push_back(stored("convolution", patterns::random(2, 9, 0.6, 4),
                       {.block = {16, 16},
                        .batch = 2,
                        .convolution = parse_convolution("kernel=3x3 padding=1 input=5x5"),
                        .target = kTarget},
                       2));
#ifdef SPARSEKILN_CPU
  for (const Specialization how : {Specialization::baked, attached}) {
    for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
      all.push_back(stored("cpu", layout,
                           {.block = {16, 16},
                            .batch = Batch::up_to(64),
                            .operation = operation,
                            .target = "generic:3",
                            .specialization = how},
                           40));
    all.push_back(stored("cpu convolution", patterns::random(2, 9, 0.6, 4),
                         {.block = {16, 16},
                          .batch = 4,
                          .convolution = parse_convolution("kernel=3x3 padding=1 input=9x9"),
                          .target = "generic:3",
                          .specialization = how},
                         4));
  }
#endif
  return all;
}

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t end) { return static_cast<std::size_t>(random() % end); }

/// Changes a bit, or a number of 1, 4 or 8 bytes, somewhere in a range.
void change_number(std::vector<std::byte>& payload, Range range, Random& random) {
  const std::size_t at = range.begin + below(random, range.end - range.begin);
  if (random() % 4 == 0) {
    payload[at] ^= static_cast<std::byte>(1 << random() % 8);
    return;
  }
  constexpr std::size_t kSizes[] = {1, 4, 4, 8};
  const std::size_t size = std::min(kSizes[random() % 4], range.end - at);
  std::uint64_t number = 0;
  std::memcpy(&number, &payload[at], size);
  const std::uint64_t others[] = {0,           1,          number + 1, number - 1, 2 * number, number + 16,
                                  number + 64, 0x7fffffff, 0x10000,    ~0ull,      1ull << 40, random()};
  number = others[below(random, std::size(others))];
  std::memcpy(&payload[at], &number, size);
}

/// A kernel whose data, which its payload compresses, has another number.
std::vector<std::byte> with_other_data(const Stored& kernel, Random& random) {
  Binary binary = kernel.binary;
  std::vector<std::byte>& data = binary.data[below(random, binary.data.size())].bytes;
  change_number(data, {0, data.size()}, random);
  return serialize_binary(kernel.identity, binary);
}

std::vector<std::byte> mutant_of(const Stored& kernel, std::size_t seed) {
  Random random(seed);
  if (!kernel.binary.data.empty() && random() % 2 == 0) return with_other_data(kernel, random);
  std::vector<std::byte> payload = kernel.payload;
  for (std::size_t changes = 1 + below(random, 3); changes > 0; --changes) {
    const Range range = kernel.metadata[below(random, kernel.metadata.size())];
    if (range.begin < range.end) change_number(payload, range, random);
  }
  return payload;
}

/// Launches what a payload holds and checks the result; false where it is refused. Throws where the result is
/// wrong, and what the library throws.
bool run(const Stored& kernel, std::span<const std::byte> payload) {
  const BuildJob& job = kernel.job;
  std::shared_ptr<const Binary> binary = usable_binary(kernel.identity, payload, job);
  if (binary == nullptr) return false;
  if (binary->lacks_layout()) binary = std::make_shared<const Binary>(attach(job.problem.layout, *binary));
  const bool cpu = job.target.kind == Target::Kind::cpu;
  const std::string name = cpu ? "cpu" : "emulated:" + job.target.to_string();
  const std::shared_ptr<const Device> device = open_device(name);
  const Kernel loaded = load(binary, name);
  const auto placed = kernel.launch->place(loaded, device);
  placed->launch(loaded);
  device->synchronize();
  const CheckResult result = placed->judge(binary->plan, nullptr);
  if (!result.ok) throw Error(ErrorKind::internal, result.first_failure);
  return true;
}

/// How many mutants were refused, and how many ran.
struct Counts {
  std::uint64_t refused = 0;
  std::uint64_t ran = 0;
};

}  // namespace

TEST_CASE("whatever numbers of a stored kernel are changed, it is refused, or runs and is right") {
  const std::size_t mutants = full() ? 3000 : 240;
  constexpr std::size_t kOfProcess = 30;
  const std::vector<Stored> kernels = stored_kernels();
  const auto work = [&](std::size_t process) {
    Counts counts;
    for (std::size_t seed = process * kOfProcess; seed < (process + 1) * kOfProcess; ++seed) {
      const Stored& kernel = kernels[seed % kernels.size()];
      try {
        ++(run(kernel, mutant_of(kernel, seed)) ? counts.ran : counts.refused);
      } catch (const std::exception& error) {
        throw Error(ErrorKind::internal,
                    std::string(kernel.name) + ", mutant " + std::to_string(seed) + ": " + error.what());
      }
    }
    const auto bytes = std::as_bytes(std::span(&counts, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  Counts all;
  const auto ended = [&](std::size_t process, const Isolated& result) {
    CAPTURE(process);
    CAPTURE(result.message);
    CHECK(result.end == Isolated::End::done);
    if (result.end != Isolated::End::done) return;
    Counts counts;
    REQUIRE(result.bytes.size() == sizeof counts);
    std::memcpy(&counts, result.bytes.data(), sizeof counts);
    all.refused += counts.refused;
    all.ran += counts.ran;
  };
  run_isolated(mutants / kOfProcess, 2, std::chrono::minutes(2), work, ended, [] { return false; });
  CHECK(all.refused + all.ran == mutants);
  CHECK(all.refused > mutants / 2);
  CHECK(all.ran > 0);
}

TEST_CASE("stored kernels whose numbers are as they were run") {
  const std::vector<Stored> kernels = stored_kernels();
  const auto work = [&](std::size_t i) {
    if (!run(kernels[i], kernels[i].payload)) throw Error(ErrorKind::internal, "refused");
    return std::vector<std::byte>{};
  };
  const auto ended = [&](std::size_t i, const Isolated& result) {
    CAPTURE(kernels[i].name);
    CAPTURE(result.message);
    CHECK(result.end == Isolated::End::done);
  };
  run_isolated(kernels.size(), 2, std::chrono::minutes(2), work, ended, [] { return false; });
}
