#include "emulator/machine/block.h"
#include "emulator/machine/cluster.h"
#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {

void fence(Warp& warp, const Instruction&, Mask mask, Scope scope) {
  if (checks_order(warp)) warp.block->order.fence(warp.index, mask, reaches_device(scope), warp.time);
}

void fence_proxy(Warp& warp, Mask mask) {
  if (checks_order(warp)) warp.block->order.fence_proxy(warp.index, mask, warp.time);
}

void synchronize_through(Warp& warp, const Instruction& instruction, int lane, AccessSpace space,
                         std::uint64_t address, AccessKind kind, Semantics semantics, Scope scope) {
  if (!checks_order(warp)) return;
  Block& block = *warp.block;
  bool shared = space == AccessSpace::shared || space == AccessSpace::shared_cluster;
  if (space == AccessSpace::generic) {
    if (address - kLocalWindow < kWindowBytes) return;
    shared = address - kSharedWindow < kWindowBytes;
  }
  SyncPlaces* where = &block.grid.places;
  if (shared) {
    const SharedPlace place = shared_place(warp, instruction, lane, static_cast<std::uint32_t>(address));
    where = &place.block->shared_places;
    address = place.offset;
  }
  SyncPlaces& places = *where;
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
