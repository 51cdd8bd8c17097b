# How everything here is compiled. Consumers inherit none of it.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# One set of objects serves the shared library, the archive and the tests.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# Without -DNDEBUG: the libraries' own asserts stay on.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")

add_compile_options(-Wall -Wextra $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
if(NOT CMAKE_UNITY_BUILD)  # there a name of another source would be shadowed
  add_compile_options(-Wshadow)
endif()
if(TCPX_WERROR)
  add_compile_options(-Werror)
endif()

if(TCPX_CHECKS)
  add_compile_definitions(TCPX_CHECKS)
endif()

if(TCPX_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TCPX_FUZZ needs clang (libFuzzer); use: cmake --preset fuzz")
  endif()
  set(TCPX_SANITIZE "fuzzer-no-link,address,undefined")
endif()
if(TCPX_SANITIZE)
  add_compile_options(-fsanitize=${TCPX_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TCPX_SANITIZE})
  if(TCPX_SANITIZE MATCHES "undefined")
    # Undefined behaviour ends the test instead of only printing.
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(TCPX_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc warns about every atomic_thread_fence; where we use one, it pairs with atomics.
    add_compile_options(-Wno-tsan)
  endif()
endif()
