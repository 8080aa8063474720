#pragma once

#include "cache/entry.h"
#include "cache/read_only_store.h"

namespace sparsekiln {

/// Checks that the payload of an entry of `store`, which is whole, is what its identity says: that very
/// Binary, layout or tuning record. The numbers of a Binary are checked where the store also has its layout,
/// or it needs none. False where that cannot be known: of another kind of entry, or where another version of
/// this program made it. Throws Error(cache), saying what it is instead.
bool check_payload(const cache::StoredEntry& entry, const cache::ReadOnlyStore& store);

}  // namespace sparsekiln
