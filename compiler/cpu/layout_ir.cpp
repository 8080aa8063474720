#include "compiler/cpu/layout_ir.h"

#include <cstddef>
#include <utility>

#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {

LayoutIr::LayoutIr(EmittedModule& module, const TableNames& names, std::string suffix, LayoutData data)
    : module_(module),
      data_(std::make_unique<const LayoutData>(std::move(data))),
      names_(names),
      suffix_(std::move(suffix)) {}

LayoutIr::LayoutIr(EmittedModule& module) : module_(module) {}

LayoutIr::Value* LayoutIr::image() const {
  VectorIr& v = module_.ir();
  return v.unchanging(v.ir.getPtrTy(), v.at(v.call, static_cast<std::int64_t>(offsetof(Call, tables))), 8,
                      "tables");
}

LayoutIr::Value* LayoutIr::number(LayoutNumber number) const {
  VectorIr& v = module_.ir();
  if (!attached()) return v.constant((*data_)[number]);
  return v.unchanging(v.ir.getInt64Ty(), v.at(image(), place_of(number)), 8);
}

LayoutIr::Value* LayoutIr::table(std::size_t table) {
  VectorIr& v = module_.ir();
  if (attached()) {
    Value* base = image();
    return v.at(base, v.unchanging(v.ir.getInt64Ty(), v.at(base, place_of_offset(table)), 8));
  }
  if (globals_[table] == nullptr)
    globals_[table] = module_.table(std::string(names_[table]) + suffix_, data_->tables[table]);
  return globals_[table];
}

}  // namespace sparsekiln::cpu
