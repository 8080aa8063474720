#pragma once

#include <cstddef>
#include <functional>

namespace sparsekiln {

/// The stack of a thread that compiles, which is what threads usually have. Compilers recurse as deep as the
/// code that they are given: for a small kernel 512 KiB are too few with NVRTC 13, and 64 KiB with LLVM 19.
inline constexpr std::size_t kDeepStack = std::size_t{8} << 20;
/// What a thread must have left to compile itself.
inline constexpr std::size_t kEnoughStack = std::size_t{4} << 20;

/// Calls `work` on this thread if kEnoughStack bytes of its stack are left, otherwise on one of its own with
/// kDeepStack bytes, which is waited for: programs may call from threads with a few KiB (musl's have 128, and
/// fibers less). What `work` throws comes out. Throws `driver` where the system has no such thread.
void on_deep_stack(const std::function<void()>& work);

}  // namespace sparsekiln
