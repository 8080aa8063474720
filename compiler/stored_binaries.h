#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/digest.h>

#include "compiler/toolchain.h"

namespace sparsekiln {

// The payload under the identity of a kernel: its Binary by each version of NVRTC that has made it. That
// version is no part of the identity, and a driver loads only what is not too new for it
// (compiler/cuda/compatibility.h): machines that share a store or a pack may need different ones.

// A payload also says which identity it was made for: an entry's checksum says that its bytes are those that
// were written, but the identity and the payload of two entries make a whole entry, too.

/// The NVRTC that made a Binary, 1000 × major + 10 × minor: 13000 for "NVRTC 13.0". 0 where LLVM made it.
[[nodiscard]] int nvrtc_version(const Binary& binary);

/// One Binary as it is stored; a view of the bytes it was read from, not looked at.
struct StoredBinary {
  int nvrtc = 0;  ///< as nvrtc_version
  std::span<const std::byte> bytes;
};

/// What a payload holds, newest first, at least one. Throws `cache` on anything off.
[[nodiscard]] std::vector<StoredBinary> stored_binaries(std::span<const std::byte> payload);

/// The key of the identity that a payload was made for. Throws `cache` where it is cut off or something else.
[[nodiscard]] Digest made_for(std::span<const std::byte> payload);

/// The versions alone, as far as they can be read from the beginning of a payload; empty where they cannot.
[[nodiscard]] std::vector<int> stored_versions(std::span<const std::byte> beginning);

/// Those whose code the toolchain's driver loads, at least as a cubin; the one that serves it best first.
[[nodiscard]] std::vector<StoredBinary> loadable(std::vector<StoredBinary> binaries,
                                                 const Toolchain& toolchain);

/// "12.9 and 13.0"
[[nodiscard]] std::string versions_text(const std::set<int>& versions);

/// Throws `cache` where it is damaged, or another NVRTC made it than its row says.
[[nodiscard]] Binary deserialize(const StoredBinary& stored);

/// All that a payload holds, newest first. Throws as that does.
[[nodiscard]] std::vector<Binary> deserialize_all(std::span<const std::byte> payload);

/// The payload that holds these, in whatever order; of one version the first. `made_for`: see above.
[[nodiscard]] std::vector<std::byte> store_binaries(const Digest& made_for,
                                                    std::span<const StoredBinary> binaries);
/// The payload that holds `binary`, and those of `others` that another NVRTC has made.
[[nodiscard]] std::vector<std::byte> store_binary(const Digest& made_for, const Binary& binary,
                                                  std::span<const StoredBinary> others = {});

}  // namespace sparsekiln
