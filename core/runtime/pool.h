/* Without a GPU, keeps memory that StarPU frees for the next buffer of that size: each step
 * allocates and frees all activations, and page faults for fresh memory cost a tenth of a LeNet
 * step. */
#ifndef SL_CORE_RUNTIME_POOL_H
#define SL_CORE_RUNTIME_POOL_H

/* Becomes StarPU's allocator; called when StarPU runs. Contexts are counted: the last close
 * frees all memory. */
void sl__pool_open(void);
void sl__pool_close(void);

#endif
