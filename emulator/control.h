#pragma once

#include <stddef.h>
#include <stdint.h>

/* What this driver has beside the CUDA Driver API. C, so that any program can use it; cuGetProcAddress hands
 * these functions out under their names, version 1000, and dlsym does as well. All apply to the whole
 * process. */

#ifdef __cplusplus
extern "C" {
#endif

/* Decides every order that programs leave open. 0 at start, or SPARSEKILN_EMULATOR_SEED. */
void emulatorSetSeed(uint64_t seed);
uint64_t emulatorSeed(void);

/* What is watched; all of it at start, or as SPARSEKILN_EMULATOR_CHECKS ("all", "none", or names joined by
 * commas: "unwritten,races,counters") says. */
enum {
  EMULATOR_CHECK_UNWRITTEN = 1,
  EMULATOR_CHECK_RACES = 2,
  EMULATOR_CHECK_COUNTERS = 4,
  EMULATOR_CHECK_ALL = 7
};
void emulatorSetChecks(unsigned checks);
unsigned emulatorChecks(void);

/* Host threads that a launch may use; 0 at start: as many as the process may run on. */
void emulatorSetThreads(int threads);

/* What the last kernel that failed did wrong, for people: kernel, block, thread, PTX line, source line, both
 * sides of a race. Empty where none failed. The text stays valid until the next call on this thread. */
const char* emulatorLastReport(void);

/* Counters since emulatorResetCounters, of every kernel that ran and is loaded still, and of the 64 that ran
 * last of those that were unloaded. */
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
 * kernel are what the lines say. Where memory runs out, or `use` throws, the rest is left out. */
void emulatorCounters(void (*use)(const EmulatorLine* line, void* with), void* with);

/* The n-th call (from 1) from now on of one sort returns `result` (a CUresult) and does nothing else. One
 * fault at a time for each sort; n = 0 clears it. */
enum {
  EMULATOR_FAULT_ALLOCATE = 0, /* cuMemAlloc, cuMemAllocHost */
  EMULATOR_FAULT_LOAD,         /* cuModuleLoadData, cuModuleLoadDataEx, cuLibraryLoadData */
  EMULATOR_FAULT_LAUNCH,       /* cuLaunchKernel, cuLaunchKernelEx, cuGraphLaunch */
  EMULATOR_FAULT_SYNCHRONIZE,  /* cuCtxSynchronize, cuStreamSynchronize, cuEventSynchronize */
  EMULATOR_FAULT_COPY,         /* cuMemcpy…, cuMemset… */
  EMULATOR_FAULT_KINDS
};
void emulatorFailCall(int kind, unsigned n, int result);

/* What is held now: allocations, modules, streams, events, graphs. Zero of each where nothing leaked. */
typedef struct EmulatorHeld {
  size_t allocations, modules, streams, events, graphs;
} EmulatorHeld;
EmulatorHeld emulatorHeld(void);

#ifdef __cplusplus
}
#endif
