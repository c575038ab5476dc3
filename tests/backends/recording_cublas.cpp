// What cublas.py calls of cuBLASLt and, of the driver, the version that bindings ask for: recorded, nothing computed.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <sstream>
#include <string>

struct Object {
  std::string head;                  // what it was made with, as JSON members
  std::map<int, long long> attributes;
  std::string json() const {
    std::ostringstream out;
    out << "{" << head;
    bool first = head.empty();
    for (const auto& [key, value] : attributes) {
      out << (first ? "" : ", ") << '"' << key << "\": " << value;
      first = false;
    }
    out << "}";
    return out.str();
  }
};

static int live = 0, freed_twice = 0, status = 0, handles = 0;
static std::string heuristic, call, preference;

static std::string show(const void* object) { return static_cast<const Object*>(object)->json(); }

static int make(void** out, const std::string& head) {
  *out = new Object{head, {}};
  live++;
  return 0;
}

static int set(void* object, int attribute, const void* value, size_t size) {
  long long number = 0;
  std::memcpy(&number, value, size);
  static_cast<Object*>(object)->attributes[attribute] = number;
  return 0;
}

static int destroy(void* object) {
  live--;
  freed_twice += live < 0;
  delete static_cast<Object*>(object);
  return 0;
}

extern "C" {
int cuDriverGetVersion(int* version) {
  *version = 12090;
  return 0;
}

int cublasLtCreate(void** handle) {
  *handle = reinterpret_cast<void*>(static_cast<intptr_t>(0x7000 + ++handles));
  return 0;
}

const char* cublasLtGetStatusName(int code) {
  return code == 13 ? "CUBLAS_STATUS_EXECUTION_FAILED" : code == 15 ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_?";
}
const char* cublasLtGetStatusString(int code) { return cublasLtGetStatusName(code); }

int cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  std::ostringstream head;
  head << "\"type\": " << type << ", \"rows\": " << rows << ", \"cols\": " << cols << ", \"ld\": " << ld;
  return make(out, head.str());
}
int cublasLtMatmulDescCreate(void** out, int compute, int scale) {
  return make(out, "\"compute\": " + std::to_string(compute) + ", \"scale\": " + std::to_string(scale));
}
int cublasLtMatmulPreferenceCreate(void** out) { return make(out, ""); }

int cublasLtMatrixLayoutSetAttribute(void* o, int a, const void* v, size_t n) { return set(o, a, v, n); }
int cublasLtMatmulDescSetAttribute(void* o, int a, const void* v, size_t n) { return set(o, a, v, n); }
int cublasLtMatmulPreferenceSetAttribute(void* o, int a, const void* v, size_t n) { return set(o, a, v, n); }
int cublasLtMatrixLayoutDestroy(void* o) { return destroy(o); }
int cublasLtMatmulDescDestroy(void* o) { return destroy(o); }
int cublasLtMatmulPreferenceDestroy(void* o) { return destroy(o); }

struct Result {
  uint64_t algo[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* op, void* a, void* b, void* c, void* d, void* wanted, int count,
                                   Result* results, int* found) {
  if (status) return status;
  std::ostringstream out;
  out << "{\"handle\": " << reinterpret_cast<intptr_t>(handle) << ", \"op\": " << show(op) << ", \"a\": " << show(a)
      << ", \"b\": " << show(b) << ", \"c\": " << show(c) << ", \"d\": " << show(d) << ", \"count\": " << count << "}";
  heuristic = out.str();
  preference = show(wanted);
  results[0].algo[0] = 77;
  results[0].workspace = 512;
  results[0].state = 0;
  results[0].waves = 1.5f;
  *found = 1;
  return 0;
}

int cublasLtMatmul(void* handle, void* op, const void* alpha, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                   const uint64_t* algo, void* workspace, size_t nbytes, void* stream) {
  if (status) return status;
  if (!c || (c == d && show(c_layout) != show(d_layout))) return 7;
  const bool host = static_cast<Object*>(op)->attributes.at(2) == 0;
  auto scalar = [&](const void* at) {
    return host ? static_cast<double>(*static_cast<const float*>(at)) : static_cast<double>(reinterpret_cast<intptr_t>(at));
  };
  auto number = [](const void* at) { return reinterpret_cast<intptr_t>(at); };
  std::ostringstream out;
  out << "{\"handle\": " << number(handle) << ", \"op\": " << show(op) << ", \"alpha\": " << scalar(alpha)
      << ", \"a\": " << number(a) << ", \"a_layout\": " << show(a_layout) << ", \"b\": " << number(b)
      << ", \"b_layout\": " << show(b_layout) << ", \"beta\": " << scalar(beta) << ", \"c\": " << number(c)
      << ", \"c_layout\": " << show(c_layout) << ", \"d\": " << number(d) << ", \"d_layout\": " << show(d_layout)
      << ", \"algo\": " << *algo << ", \"workspace\": " << number(workspace) << ", \"nbytes\": " << nbytes
      << ", \"stream\": " << number(stream) << "}";
  call = out.str();
  return 0;
}

// For the test.
void recording_fail(int code) { status = code; }
const char* recording_report(int which) { return (which == 0 ? heuristic : which == 1 ? call : preference).c_str(); }
int recording_live(int twice) { return twice ? freed_twice : live; }
}
