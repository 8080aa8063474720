#pragma once

#include "cache/entry.h"

namespace sparsekiln {

/// Checks that the payload of an entry, which is whole, is what its identity says: that very Binary, layout
/// or tuning record. False where that cannot be known: of another kind of entry, or where another version of
/// this program made it. Throws Error(cache), saying what it is instead.
bool check_payload(const cache::StoredEntry& entry);

}  // namespace sparsekiln
