# One object target per folder of src/; a layer may use only the layers below it.
# tests/check_layers.py holds the includes to the same order.

# Sanitized builds and the tests of the release build compile up to eight sources as one (CMAKE_UNITY_BUILD), which takes less
# than half the time. Not these: each has a name of its own file (in an unnamed namespace) that another source of its folder has too.
set(TCPX_COMPILED_ALONE
  src/path/net/plugin.cc src/path/net/plugin_probe.cc
  plugins/tcpx_emu/send_comm.cc
  tests/unit/greeting_test.cc tests/unit/polling_test.cc
  tests/conformance/net_window_test.cc tests/conformance/struct_size_test.cc
  tests/fault/fence_test.cc tests/fault/gpu_fence_test.cc tests/fault/keys_test.cc tests/fault/lane_loss_test.cc tests/fault/net_text_test.cc
  tests/fault/page_fault_test.cc tests/fault/resolver_test.cc tests/fault/shutdown_test.cc
  tests/support/failing_threads.cc)
list(TRANSFORM TCPX_COMPILED_ALONE PREPEND ${PROJECT_SOURCE_DIR}/)

# tcpx_compile_alone(): heeds that list for targets of this folder.
macro(tcpx_compile_alone)
  set_source_files_properties(${TCPX_COMPILED_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endmacro()

# tcpx_layer(<name> [<lower layer>...]): target tcpx_<name> from every .cc below this folder.
function(tcpx_layer name)
  set(target tcpx_${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(scope PUBLIC)
  if(sources)
    add_library(${target} OBJECT ${sources})
    tcpx_compile_alone()
    set_property(GLOBAL APPEND PROPERTY TCPX_OBJECT_LAYERS ${target})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR}/src
                                                ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} ${scope} tcpx_dep_fmt tcpx_dep_json OpenSSL::Crypto
                                           Threads::Threads)
  foreach(lower IN LISTS ARGN)
    target_link_libraries(${target} ${scope} tcpx_${lower})
  endforeach()
endfunction()

# tcpx_inside(<target>): a program of ours that looks inside: links the archive, sees src/.
function(tcpx_inside target)
  target_link_libraries(${target} PRIVATE tcpx_p2p_static tcpx_dep_fmt tcpx_dep_json
                                          OpenSSL::Crypto Threads::Threads)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
endfunction()
