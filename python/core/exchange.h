#pragma once

#include <cstdint>

#include <dlpack/dlpack.h>

namespace sparsekiln::python {

/// DLPack's C exchange interface between frameworks, version 1.x from 1.2 on (dlpack.h of that version;
/// Debian's is older): the content of `type(tensor).__dlpack_c_exchange_api__`, a capsule named
/// "dlpack_exchange_api". It avoids a Python call and an allocation for each tensor.
struct Exchange {
  struct Version {
    std::uint32_t major, minor;
  };
  struct Header {
    Version version;
    Header* previous;
  };
  struct Managed;  ///< DLManagedTensorVersioned; only passed on
  using SetError = void (*)(void* context, const char* kind, const char* message);

  Header header;
  /// A tensor of the prototype's type, shape and device.
  int (*allocate)(DLTensor* prototype, Managed** tensor, void* context, SetError set_error);
  int (*to_managed)(void* object, Managed** tensor);
  /// Takes ownership of the tensor.
  int (*to_object)(Managed* tensor, void** object);
  /// Borrows the tensor: valid as long as the object is not changed. Null if a framework lacks this function.
  int (*borrow)(void* object, DLTensor* tensor);
  int (*current_stream)(DLDeviceType device, std::int32_t number, void** stream);
};

}  // namespace sparsekiln::python
