# Kernels as text that drivers compile (PTX). What nvcc writes names the newest instruction set it knows, and drivers
# older than that refuse it; these kernels use nothing beyond 7.0, so that is what they say: drivers from 11.0 on take
# them, for every GPU from sm_80 on. ptxas checks at build time that it is so.
set(TCPX_CUDA auto CACHE STRING "Build the GPU kernels: auto (where nvcc is found), on, off")
set_property(CACHE TCPX_CUDA PROPERTY STRINGS auto on off)
set(TCPX_PTX_VERSION 7.0)
set(TCPX_PTX_ARCH 80)

if(NOT TCPX_CUDA STREQUAL "off")
  find_program(TCPX_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
  if(TCPX_CUDA STREQUAL "on" AND NOT TCPX_NVCC)
    message(FATAL_ERROR "TCPX_CUDA=on needs nvcc: put it on PATH, or set TCPX_NVCC to its file")
  endif()
endif()

# tcpx_kernels(<layer>): kernel_image() of that layer, from its kernels/*.cu; null without nvcc.
function(tcpx_kernels layer)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/kernel_image.cc)
  set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedPtx.cmake)
  if(TCPX_CUDA STREQUAL "off" OR NOT TCPX_NVCC)
    execute_process(COMMAND ${CMAKE_COMMAND} -DOUT=${generated} -P ${script})
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.cu)
    file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.h)
    list(LENGTH sources count)
    if(NOT count EQUAL 1)
      message(FATAL_ERROR "one source makes one image")
    endif()
    add_custom_command(OUTPUT ${generated}
      COMMAND ${TCPX_NVCC} -ptx -std=c++17 -O3 -arch=compute_${TCPX_PTX_ARCH} -I${PROJECT_SOURCE_DIR}/src
              -o kernels.ptx ${sources}
      COMMAND ${CMAKE_COMMAND} -DPTX=kernels.ptx -DVERSION=${TCPX_PTX_VERSION} -DOUT=${generated} -P ${script}
      COMMAND ptxas -arch=sm_${TCPX_PTX_ARCH} -o kernels.cubin kernels.ptx.old
      DEPENDS ${sources} ${headers} ${script} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
      COMMENT "GPU kernels for PTX ${TCPX_PTX_VERSION}" VERBATIM)
  endif()
  target_sources(tcpx_${layer} PRIVATE ${generated})
  set_source_files_properties(${generated} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
