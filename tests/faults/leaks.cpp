// Read by AddressSanitizer when the program starts, where it is built with it. NVRTC keeps what it allocates
// for the life of the process.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libnvrtc\nleak:dl_open\n"; }
