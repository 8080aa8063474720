#pragma once

#include <stddef.h>
#include <stdint.h>

/* The functions of this driver in addition to the CUDA Driver API. They are C, so that any program can use
 * them; cuGetProcAddress returns them by their names, version 1000, and so does dlsym. All apply to the whole
 * process. */

#ifdef __cplusplus
extern "C" {
#endif

/* Decides every order that programs leave open. It is 0 at start, or SPARSEKILN_EMULATOR_SEED. */
void emulatorSetSeed(uint64_t seed);
uint64_t emulatorSeed(void);

/* The checks: at start all of them, or those that SPARSEKILN_EMULATOR_CHECKS names ("all", "none", or names
 * separated by commas: "unwritten,races,counters"). */
enum {
  EMULATOR_CHECK_UNWRITTEN = 1,
  EMULATOR_CHECK_RACES = 2,
  EMULATOR_CHECK_COUNTERS = 4,
  EMULATOR_CHECK_ALL = 7
};
void emulatorSetChecks(unsigned checks);
unsigned emulatorChecks(void);

/* Host threads that a launch may use. 0, the value at start: as many as the process may run on. */
void emulatorSetThreads(int threads);

/* A readable report of what the last kernel that failed did wrong: kernel, block, thread, PTX line, source
 * line, both sides of a race. Empty if none failed. The text stays valid until the next call on this thread.
 */
const char* emulatorLastReport(void);

/* Counters since emulatorResetCounters, of every kernel that ran and is still loaded, and of the 64 unloaded
 * ones that ran last. */
typedef struct EmulatorLine {
  const char* kernel; /* its name */
  unsigned ptx_line;
  const char* instruction; /* as the PTX has it */
  const char* source_file; /* empty where the PTX does not say */
  unsigned source_line;
  const char* kind; /* "integer", "tensor" … */
  uint64_t executed, global_requests, global_sectors, global_bytes, shared_wavefronts, shared_ideal,
      tensor_operations, divergent;
} EmulatorLine;
void emulatorResetCounters(void);
/* Calls `use` for each instruction that ran at least once, by kernel and line. Launches and barriers per
 * kernel follow from the lines. If memory runs out, or `use` throws, the rest is left out. */
void emulatorCounters(void (*use)(const EmulatorLine* line, void* with), void* with);

/* The n-th call (from 1) of one kind from now on returns `result` (a CUresult) and does nothing else. There
 * is one fault at a time for each kind; n = 0 clears it. */
enum {
  EMULATOR_FAULT_ALLOCATE = 0, /* cuMemAlloc, cuMemAllocHost */
  EMULATOR_FAULT_LOAD,         /* cuModuleLoadData, cuModuleLoadDataEx, cuLibraryLoadData */
  EMULATOR_FAULT_LAUNCH,       /* cuLaunchKernel, cuLaunchKernelEx, cuGraphLaunch */
  EMULATOR_FAULT_SYNCHRONIZE,  /* cuCtxSynchronize, cuStreamSynchronize, cuEventSynchronize */
  EMULATOR_FAULT_COPY,         /* cuMemcpy…, cuMemset… */
  EMULATOR_FAULT_KINDS
};
void emulatorFailCall(int kind, unsigned n, int result);

/* The numbers of objects that exist now: allocations, modules, streams, events, graphs. Zero of each if
 * nothing leaked. */
typedef struct EmulatorHeld {
  size_t allocations, modules, streams, events, graphs;
} EmulatorHeld;
EmulatorHeld emulatorHeld(void);

#ifdef __cplusplus
}
#endif
