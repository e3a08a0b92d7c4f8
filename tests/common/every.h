/* An emulated processor (tests/codelets/test_arm.sh) tries every 23rd of many shapes; this one
 * tries all of them, in vectors of its width, too. 23 and what varies shapes have no factor in
 * common. */
#ifndef SL_TESTS_COMMON_EVERY_H
#define SL_TESTS_COMMON_EVERY_H

#ifdef SL__EMULATED
enum { EVERY = 23 };
#else
enum { EVERY = 1 };
#endif

#endif
