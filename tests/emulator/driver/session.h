#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cuda.h>

#include "emulator/control.h"

/// A test's time with the emulator: the primary context of a device is current, nothing is in it, no fault is
/// planned. Afterwards everything is as before, whatever the test left.
class Session {
 public:
  explicit Session(int ordinal = 0);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  [[nodiscard]] CUcontext context() const { return context_; }
  [[nodiscard]] CUdevice device() const { return device_; }

 private:
  CUcontext context_ = nullptr;
  CUdevice device_ = 0;
};

/// PTX with the kernels
///   add_one(u32* p, u32 n): p[i] += 1 for every i below n, i over x
///   nothing(): returns
///   bounded(): as `nothing`, .maxntid 64
///   exactly(): as `nothing`, .reqntid 32, 2
///   hungry(): as `nothing`, 40 KB of static shared memory
/// and the variables `table` (.const, four u32: 1, 2, 3, 4), `zeros` (.global, 32 bytes, no initial value).
[[nodiscard]] const std::string& test_ptx();

/// test_ptx, loaded. Checked.
[[nodiscard]] CUmodule load_test_ptx();
[[nodiscard]] CUfunction kernel(CUmodule module, const char* name);

/// Device memory with these values.
[[nodiscard]] CUdeviceptr upload(const std::vector<std::uint32_t>& values);
[[nodiscard]] std::vector<std::uint32_t> download(CUdeviceptr memory, std::size_t count);

/// add_one over n elements of `memory`, in blocks of 32.
[[nodiscard]] CUresult launch_add_one(CUfunction add_one, CUdeviceptr memory, std::uint32_t n,
                                      CUstream stream = nullptr);
/// What a stream captured until now, ready to be launched.
[[nodiscard]] CUgraphExec end_capture(CUstream stream);
/// One block of one thread of a kernel without parameters.
[[nodiscard]] CUresult launch_plain(CUfunction function, unsigned threads = 1, unsigned dynamic_shared = 0);
