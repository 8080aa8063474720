#include "runtime/cuda/driver_api.h"

namespace sparsekiln::cuda {
namespace {

template <auto member>
void store(DriverApi& api, void* address) {
  using Function = std::remove_reference_t<decltype(api.*member)>;
  api.*member = reinterpret_cast<Function>(address);
}

constexpr DriverSymbol kSymbols[] = {
#define SPARSEKILN_REQUIRED(member, name, version) {#name, version, true, store<&DriverApi::member>},
#define SPARSEKILN_OPTIONAL(member, name, version) {#name, version, false, store<&DriverApi::member>},
    SPARSEKILN_DRIVER_FUNCTIONS(SPARSEKILN_REQUIRED, SPARSEKILN_OPTIONAL)
#undef SPARSEKILN_REQUIRED
#undef SPARSEKILN_OPTIONAL
        {"cuFuncLoad", 12040, false, store<&DriverApi::func_load>},
};

}  // namespace

std::span<const DriverSymbol> driver_symbols() { return kSymbols; }

}  // namespace sparsekiln::cuda
