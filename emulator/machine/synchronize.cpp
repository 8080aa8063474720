#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {

void fence(Warp& warp, const Instruction&, Mask mask, Scope scope) {
  if (checks_order(warp)) warp.block->order.fence(warp.index, mask, reaches_device(scope), warp.time);
}

void synchronize_through(Warp& warp, const Instruction&, int lane, AccessSpace space, std::uint64_t address,
                         AccessKind kind, Semantics semantics, Scope scope) {
  if (!checks_order(warp)) return;
  Block& block = *warp.block;
  bool shared = space == AccessSpace::shared;
  if (shared) {
    address = static_cast<std::uint32_t>(address);
  } else if (space == AccessSpace::generic) {
    if (address - kLocalWindow < kWindowBytes) return;
    shared = address - kSharedWindow < kWindowBytes;
    if (shared) address -= kSharedWindow;
  }
  SyncPlaces& places = shared ? block.shared_places : block.grid.places;
  const bool device = reaches_device(scope);
  if (kind != AccessKind::write)
    if (const SyncPlace* const place = places.find(address); place != nullptr)
      block.order.read(warp.index, lane, *place,
                       semantics == Semantics::acquire || semantics == Semantics::acquire_release, device);
  if (kind != AccessKind::read)
    block.order.write(warp.index, lane, places, address, kind == AccessKind::atomic,
                      semantics == Semantics::release || semantics == Semantics::acquire_release, device,
                      warp.time);
}

}  // namespace sparsekiln::emulator
