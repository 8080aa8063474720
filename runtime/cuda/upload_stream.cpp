#include "runtime/cuda/upload_stream.h"

#include <utility>

namespace sparsekiln::cuda {

UploadStream::UploadStream(const Driver& driver, std::string what) : driver_(driver), what_(std::move(what)) {
  driver_.check(driver_.api().stream_create(&stream_, CU_STREAM_NON_BLOCKING),
                "making a stream to upload " + what_);
}

UploadStream::~UploadStream() { static_cast<void>(driver_.api().stream_destroy(stream_)); }

void UploadStream::copy(CUdeviceptr to, std::span<const std::byte> from) const {
  driver_.check(driver_.api().memcpy_htod_async(to, from.data(), from.size(), stream_),
                "copying to the device " + what_);
}

void UploadStream::wait() const {
  driver_.check(driver_.api().stream_synchronize(stream_), "copying to the device " + what_);
}

}  // namespace sparsekiln::cuda
