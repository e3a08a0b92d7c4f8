/* Memory that StarPU frees is kept for the next buffer of that size, where there is no GPU:
 * activations come and go with every step, and handing pages back to the system each time costs a
 * tenth of a LeNet step in page faults. */
#ifndef SL_CORE_RUNTIME_POOL_H
#define SL_CORE_RUNTIME_POOL_H

/* Become StarPU's allocator; called once StarPU runs. Contexts are counted: the last one out gives
 * all memory back. */
void sl__pool_open(void);
void sl__pool_close(void);

#endif
