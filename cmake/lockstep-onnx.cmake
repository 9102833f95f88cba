# SPDX-License-Identifier: BSD-3-Clause
# lockstep::onnx for infer/onnx.hpp, where the protocol buffers of ONNX are found (Debian: libonnx-dev, libprotobuf-dev). A program links it beside
# lockstep::lockstep.
if(NOT TARGET lockstep::onnx)
  find_package(Protobuf QUIET)
  find_path(lockstep_onnx_headers onnx/onnx-ml.pb.h)
  find_library(lockstep_onnx_library onnx_proto)
  mark_as_advanced(lockstep_onnx_headers lockstep_onnx_library)
  if(Protobuf_FOUND AND lockstep_onnx_headers AND lockstep_onnx_library)
    add_library(lockstep::onnx INTERFACE IMPORTED GLOBAL)
    target_include_directories(lockstep::onnx INTERFACE ${lockstep_onnx_headers} ${Protobuf_INCLUDE_DIRS})
    target_link_libraries(lockstep::onnx INTERFACE ${lockstep_onnx_library} ${Protobuf_LIBRARIES})
  endif()
endif()
