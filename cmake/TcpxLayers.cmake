# One object target per folder of src/; a layer may use only the layers below it.
# tests/check_layers.py holds the includes to the same order.

# tcpx_layer(<name> [<lower layer>...]): target tcpx_<name> from every .cc below this folder.
function(tcpx_layer name)
  set(target tcpx_${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(scope PUBLIC)
  if(sources)
    add_library(${target} OBJECT ${sources})
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
