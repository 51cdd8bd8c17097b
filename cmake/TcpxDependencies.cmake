# Found by header or library, not by package, so that copies under CMAKE_PREFIX_PATH serve as well
# as distribution packages. The library needs OpenSSL's libcrypto, fmt (headers only) and threads.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# tcpx_header_dependency(<target> <header> <package that has it>)
function(tcpx_header_dependency target header package)
  find_path(${target}_INCLUDE_DIR ${header})
  if(NOT ${target}_INCLUDE_DIR)
    message(FATAL_ERROR "<${header}> not found: install ${package} (./run setup) or add its prefix "
                        "to CMAKE_PREFIX_PATH")
  endif()
  add_library(${target} INTERFACE)
  # The compiler's own directories must not be given again: it breaks #include_next.
  if(NOT ${target}_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
    target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIR})
  endif()
endfunction()

tcpx_header_dependency(tcpx_dep_fmt fmt/format.h libfmt-dev)
# No libfmt is linked. Everything formats through base/text.h, whose .cc alone defines FMT_HEADER_ONLY
# (as does the one file that includes spdlog): with it in every file the build takes four times as long.
tcpx_header_dependency(tcpx_dep_json nlohmann/json.hpp nlohmann-json3-dev)

if(TCPX_TOOLS AND NOT TCPX_FUZZ)
  tcpx_header_dependency(tcpx_dep_cli11 CLI/CLI.hpp libcli11-dev)
  tcpx_header_dependency(tcpx_dep_spdlog spdlog/spdlog.h libspdlog-dev)
  target_compile_definitions(tcpx_dep_spdlog INTERFACE SPDLOG_FMT_EXTERNAL=1)
endif()
if(TCPX_TESTS AND NOT TCPX_FUZZ)
  find_package(GTest REQUIRED)
endif()
