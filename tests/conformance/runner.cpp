#include "tests/conformance/runner.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include <sparsekiln/error.h>

#include "tests/conformance/assemble.h"

namespace sparsekiln::conformance {
namespace {

constexpr std::size_t kGuardBytes = 256;  ///< around the answers, to detect writes next to them

int device_number(const cuda::Driver& driver, std::string_view target) {
  const std::size_t colon = target.find(':');
  const std::string_view sort = target.substr(0, colon);
  std::string_view rest = colon == target.npos ? "" : target.substr(colon + 1);
  const bool by_architecture = sort == "emulated";
  if (by_architecture && rest.starts_with("sm_")) rest.remove_prefix(3);
  int wanted = by_architecture ? 90 : 0;
  const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), wanted);
  if ((sort != "cuda" && sort != "emulated") ||
      (!rest.empty() && (status != std::errc{} || end != rest.data() + rest.size())))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("target '{}': cuda, cuda:N, emulated or emulated:sm_90 would work", target));
  if (!by_architecture) return wanted;
  int count = 0;
  driver.check(driver.api().device_get_count(&count), "counting devices");
  for (int i = 0; i < count; ++i)
    if (cuda::device_info(driver, i).compute_capability == wanted) return i;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} has no device of sm_{}", driver.path().string(), wanted));
}

/// Device memory for one case.
class Memory {
 public:
  Memory(const cuda::Driver& driver, const std::vector<std::uint8_t>& content)
      : driver_(driver), bytes_(content.size()) {
    driver.check(driver.api().mem_alloc(&address_, bytes_), "allocating memory");
    driver.check(driver.api().memcpy_htod(address_, content.data(), bytes_), "copying to the device");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { static_cast<void>(driver_.api().mem_free(address_)); }
  [[nodiscard]] CUdeviceptr address() const { return address_; }
  [[nodiscard]] std::vector<std::uint8_t> read() const {
    std::vector<std::uint8_t> content(bytes_);
    driver_.check(driver_.api().memcpy_dtoh(content.data(), address_, bytes_), "copying from the device");
    return content;
  }

 private:
  const cuda::Driver& driver_;
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

/// A module of PTX text.
class Code {
 public:
  Code(const cuda::Driver& driver, const std::string& ptx) : driver_(driver) {
    std::array<char, 8192> log{};
    std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size() - 1)};
    const CUresult result =
        driver.api().module_load_data(&module_, ptx.c_str(), 2, options.data(), values.data());
    if (result != CUDA_SUCCESS)
      throw Error(ErrorKind::driver,
                  fmt::format("loading the module: {}\n{}\n{}", driver.describe(result), log.data(), ptx));
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { static_cast<void>(driver_.api().module_unload(module_)); }
  [[nodiscard]] CUfunction entry() const {
    CUfunction function = nullptr;
    driver_.check(driver_.api().module_get_function(&function, module_, kEntry), "looking for the kernel");
    return function;
  }

 private:
  const cuda::Driver& driver_;
  CUmodule module_ = nullptr;
};

std::vector<std::uint8_t> pack_rows(const Case& test) {
  const auto stride = static_cast<std::size_t>(row_bytes(test.in));
  std::vector<std::uint8_t> rows(std::max<std::size_t>(stride * test.given.size(), 8));
  for (std::size_t i = 0; i < test.given.size() && stride > 0; ++i)
    pack(test.in, test.given[i], &rows[i * stride]);
  return rows;
}

void check_guards(const std::vector<std::uint8_t>& content) {
  const auto poisoned = [](std::uint8_t byte) { return byte == kPoison; };
  if (!std::all_of(content.begin(), content.begin() + kGuardBytes, poisoned) ||
      !std::all_of(content.end() - kGuardBytes, content.end(), poisoned))
    throw Error(ErrorKind::driver, "the kernel wrote outside of its answers");
}

}  // namespace

Runner::Runner(std::string_view target) {
  if (target.starts_with("emulated")) emulator_.emplace();
  driver_ = cuda::Driver::find(emulated() ? cuda::DriverKind::emulator : cuda::DriverKind::cuda);
  device_ = cuda::device_info(*driver_, device_number(*driver_, target));
  open();
}

Runner::~Runner() { close(); }

void Runner::open() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  driver_->check(driver_->api().device_get(&device, device_.ordinal), "asking for the device");
  driver_->check(driver_->api().primary_ctx_retain(&context, device), "opening the device");
  driver_->check(driver_->api().ctx_set_current(context), "opening the device");
}

void Runner::close() noexcept {
  CUdevice device = 0;
  if (driver_->api().device_get(&device, device_.ordinal) != CUDA_SUCCESS) return;
  static_cast<void>(driver_->api().ctx_set_current(nullptr));
  static_cast<void>(driver_->api().primary_ctx_release(device));
}

Answer Runner::run(const Case& test) {
  try {
    return run_in_context(test);
  } catch (const Error&) {
    close();
    if (emulated()) emulator_->reset_device(device_.ordinal);
    open();
    throw;
  }
}

Answer Runner::run_in_context(const Case& test) const {
  const cuda::DriverApi& api = driver_->api();
  const Code code(*driver_, module_of(test));
  const auto stride = static_cast<std::size_t>(row_bytes(test.out));
  const std::size_t answer_bytes = stride * test.expected.size();
  const Memory given(*driver_, pack_rows(test));
  const Memory answers(*driver_, std::vector<std::uint8_t>(answer_bytes + 2 * kGuardBytes, kPoison));
  const Memory scratch(*driver_, std::vector<std::uint8_t>(kScratchBytes));
  std::array<CUdeviceptr, 3> arguments{given.address(), answers.address() + kGuardBytes, scratch.address()};
  std::array<void*, 3> pointers{&arguments[0], &arguments[1], &arguments[2]};
  const auto size = [](int count) { return static_cast<unsigned>(count); };
  CUresult result = api.launch_kernel(
      code.entry(), size(test.grid[0]), size(test.grid[1]), size(test.grid[2]), size(test.block[0]),
      size(test.block[1]), size(test.block[2]), size(test.shared_bytes), nullptr, pointers.data(), nullptr);
  if (result == CUDA_SUCCESS) result = api.ctx_synchronize();
  if (result != CUDA_SUCCESS)
    throw Error(ErrorKind::driver, fmt::format("running the kernel: {}\n{}\n{}", driver_->describe(result),
                                               emulated() ? emulator_->last_report() : "", module_of(test)));
  const std::vector<std::uint8_t> content = answers.read();
  check_guards(content);
  Answer answer;
  for (std::size_t i = 0; i < test.expected.size(); ++i)
    answer.push_back(unpack(test.out, &content[kGuardBytes + i * stride]));
  return answer;
}

}  // namespace sparsekiln::conformance
