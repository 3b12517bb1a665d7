/* The driver's library, as far as graphs with two exchangeable kernels ask of it. It remembers what it was told. */

#include <stdint.h>
#include <string.h>

typedef struct {
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;
  void* context;
} Parameters;

static struct { uint64_t node, arguments[3], exchanges, destroyed, status; } told;

uint64_t* stub_told(void) { return (uint64_t*)&told; }

static int fine(void) { return 0; }
static int version(int* number) { return *number = 13000, 0; }
static int named(int code, const char** text) { return *text = "CUDA_ERROR_OF_THE_STUB", 0; }
static int instantiated(void** executable, void* graph, unsigned long long flags) { return *executable = (void*)9, 0; }
static int destroyed(void* handle) { return told.destroyed++, 0; }

/* Nodes 101, 102, 103 in a row. */
static int roots(void* graph, void** nodes, size_t* count) {
  if (nodes) nodes[0] = (void*)101;
  return *count = 1, 0;
}
static int all_nodes(void* graph, void** nodes, size_t* count) {
  for (size_t i = 0; nodes && i < *count; i++) nodes[i] = (void*)(101 + i);
  return *count = 3, 0;
}
static int edges(void* graph, void** starts, void** ends, void* data, size_t* count) {
  for (size_t i = 0; starts && i < *count; i++) starts[i] = (void*)(101 + i), ends[i] = (void*)(102 + i);
  return *count = 2, 0;
}

static int parameters_of(void* node, Parameters* found) {
  memset(found, 0, sizeof(*found));
  found->function = (void*)7, found->grid[0] = 5;
  return 0;
}
static int exchanged(void* executable, void* node, const Parameters* given) {
  if (executable != (void*)9 || given->function != (void*)7 || given->grid[0] != 5) return 1;
  told.exchanges++, told.node = (uint64_t)node;
  for (int i = 0; i < 3; i++) told.arguments[i] = *(uint64_t*)given->arguments[i];
  return (int)told.status;
}

static const struct { const char* name; void* function; } known[] = {
    {"cuDriverGetVersion", version},
    {"cuGetErrorName", named},
    {"cuGetErrorString", named},
    {"cuGraphInstantiate", instantiated},
    {"cuGraphInstantiateWithFlags", instantiated},
    {"cuGraphDestroy", destroyed},
    {"cuGraphExecDestroy", destroyed},
    {"cuGraphGetRootNodes", roots},
    {"cuGraphGetNodes", all_nodes},
    {"cuGraphGetEdges", edges},
    {"cuGraphKernelNodeGetParams", parameters_of},
    {"cuGraphExecKernelNodeSetParams", exchanged},
};

int cuGetProcAddress_v2(const char* name, void** function, int wanted, uint64_t flags, int* status) {
  *function = fine;
  for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
    if (!strcmp(known[i].name, name)) *function = known[i].function;
  if (status) *status = 0;
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int wanted, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, wanted, flags, 0);
}
