# Ranges for profilers (src/base/ranges.h), by NVTX's header alone: nothing is linked, and a tool comes into the process by
# itself.
set(TCPX_NVTX auto CACHE STRING "Show profilers what chunks wait for: auto (where nvtx3/nvToolsExt.h is found), on, off")
set_property(CACHE TCPX_NVTX PROPERTY STRINGS auto on off)
if(NOT TCPX_NVTX STREQUAL "off")
  find_path(TCPX_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
            HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
  if(TCPX_NVTX STREQUAL "on" AND NOT TCPX_NVTX_INCLUDE_DIR)
    message(FATAL_ERROR "TCPX_NVTX=on needs <nvtx3/nvToolsExt.h>: it comes with the CUDA toolkit; set TCPX_NVTX_INCLUDE_DIR "
                        "to the folder that has nvtx3")
  endif()
endif()
if(TCPX_NVTX_INCLUDE_DIR AND NOT TCPX_NVTX STREQUAL "off")
  set(TCPX_HAVE_NVTX ON)
endif()

# tcpx_nvtx(<target> <source>): that source may include the header, and knows by TCPX_HAVE_NVTX whether it is there.
function(tcpx_nvtx target source)
  if(NOT TCPX_HAVE_NVTX)
    return()
  endif()
  target_include_directories(${target} SYSTEM PRIVATE ${TCPX_NVTX_INCLUDE_DIR})
  set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS TCPX_HAVE_NVTX)
endfunction()
