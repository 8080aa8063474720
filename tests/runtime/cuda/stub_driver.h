#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/cuda/stub_launch.h"

/// A CUDA driver for tests and for measuring what a launch costs on the host: the Driver API's functions that
/// runtime/cuda calls, by way of cuGetProcAddress, on two devices whose memory is the host's. A launch is
/// recorded and does nothing. Contexts are as NVIDIA's driver has them: each thread has a stack of its own,
/// on which none is current at first, retaining a primary one makes it current nowhere, the last release ends
/// it wherever it is current, and calls answer CUDA_ERROR_INVALID_CONTEXT where none is current and
/// CUDA_ERROR_INVALID_HANDLE for what was made in another one. Load it with SPARSEKILN_CUDA_DRIVER=<path()>;
/// link with it to use what is declared here.
///
/// It loads as a module: a real cubin (any function is found, parameters are not recorded); text of the form
/// `cubin sm_90` and a line `kernel NAME SIZE…` each, with the parameters' sizes in bytes, for that
/// architecture only, and lines `variable NAME BYTES`; and PTX for up to the device's architecture, with such
/// lines as comments. A line `broken` makes either invalid.
namespace stub {

/// The file of this library.
std::string path();

/// Forgets what was recorded and all that was set below; contexts and memory stay.
void reset();

/// Records launches and calls from here on. Off at first, so that a launch costs next to nothing.
void record();
std::vector<Launch> launches();
/// What was asked of cuTensorMapEncodeTiled, in order; see tensor_map_bytes for what it makes.
std::vector<TensorMap> tensor_maps();
/// Names of the functions called, in order: "cuMemAlloc", "cuMemsetD8Async" … (not cuCtxGetCurrent, nor
/// queries).
std::vector<std::string> calls();

/// The next call of `function` answers `result` (a CUresult).
void fail_next(const std::string& function, int result);
/// cuGetProcAddress no longer knows `function`; or says that the driver is for CUDA `version`, knowing
/// nothing newer: 13000, or what SPARSEKILN_TEST_DRIVER_VERSION says, where it is not set.
void hide(const std::string& function);
void set_version(int version);
/// What cuGetProcAddress was asked for: names and versions.
std::vector<std::pair<std::string, int>> asked();

/// A context beside the primary one, current nowhere, and its end (cuCtxDestroy): modules and memory in it
/// are gone; this thread has it current no more, while others that had it still do.
void* create_context(int device);
void destroy_context(void* context);
/// The calling thread's only context from here on; null: none.
void set_current(void* context);
void* current();
int primary_references(int device);

/// Destroys a stream and makes a new one with the same handle, as a driver may.
void reuse_handle(void* stream);

std::size_t live_modules();
std::size_t live_allocations();
/// A variable of the module that was loaded last.
const std::vector<std::byte>& variable(const std::string& name);
/// Functions made resident by cuFuncLoad.
std::vector<std::string> resident();
/// The most dynamic shared memory that was set for a function.
int dynamic_shared(const std::string& function);

}  // namespace stub
