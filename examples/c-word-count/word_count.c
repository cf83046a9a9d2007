/* A tool in C: counts the words, lines and bytes of a file.
 *
 * The module is a WASI command. `describe` prints what it has; `call` reads one frame from standard input and
 * writes one to standard output (docs/authoring.md, "Frames, for other languages"). The exit code is 0 for a
 * result and for an error alike; another one says that the host asked something that no host asks.
 *
 * The JSON reader below takes JSON and nothing else, in a bounded buffer and to a bounded depth. What it does
 * not understand it refuses. */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_FRAME = 2 << 20, /* the host's arguments are at most 1 MiB, serialized again */
    MAX_DEPTH = 80,      /* the host's are at most 64 */
    MAX_PATH = 4096,
    MAX_KEY = 64,
    EXIT_MISUSE = 2
};

static const char DECLARATION[] =
    "{\"v\":1,\"tools\":[{\"name\":\"c_word_count\","
    "\"description\":\"Counts the words, lines and bytes of a file.\",\"tier\":\"read_only\",\"timeout_ms\":5000,"
    "\"parameters\":{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"path\"],"
    "\"properties\":{\"path\":{\"type\":\"string\",\"description\":\"The file, such as /shared/notes.md.\"}}},"
    "\"output_schema\":{\"type\":\"object\",\"required\":[\"words\",\"lines\",\"bytes\"],"
    "\"properties\":{\"words\":{\"type\":\"integer\"},\"lines\":{\"type\":\"integer\"},\"bytes\":{\"type\":\"integer\"}}},"
    "\"roles\":[{\"argument\":\"path\",\"role\":{\"path\":\"read\"}}]}]}\n";

/* --- Reading JSON ------------------------------------------------------------------------------------------ */

static char frame[MAX_FRAME + 1];
static const char *at, *end;

static void skip_space(void) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
}

static bool take(char wanted) {
    skip_space();
    if (at == end || *at != wanted) return false;
    at++;
    return true;
}

static bool hex4(uint32_t *unit) {
    *unit = 0;
    for (int i = 0; i < 4; i++, at++) {
        if (at == end) return false;
        char c = *at;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) return false;
        *unit = *unit << 4 | digit;
    }
    return true;
}

/* Where a text goes. Without a buffer it is only checked. */
struct sink {
    char *buffer;
    size_t room, length;
    bool overflow;
};

static void put(struct sink *sink, char c) {
    if (!sink->buffer) return;
    if (sink->length + 1 < sink->room) sink->buffer[sink->length++] = c;
    else sink->overflow = true;
}

static void put_code_point(struct sink *sink, uint32_t c) {
    if (c < 0x80) {
        put(sink, (char)c);
    } else if (c < 0x800) {
        put(sink, (char)(0xc0 | c >> 6));
        put(sink, (char)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        put(sink, (char)(0xe0 | c >> 12));
        put(sink, (char)(0x80 | (c >> 6 & 0x3f)));
        put(sink, (char)(0x80 | (c & 0x3f)));
    } else {
        put(sink, (char)(0xf0 | c >> 18));
        put(sink, (char)(0x80 | (c >> 12 & 0x3f)));
        put(sink, (char)(0x80 | (c >> 6 & 0x3f)));
        put(sink, (char)(0x80 | (c & 0x3f)));
    }
}

/* A text. Fails for what is not JSON text, for half a surrogate pair and for NUL, which ends texts in C. */
static bool read_text(struct sink *sink) {
    if (!take('"')) return false;
    while (at < end) {
        unsigned char c = (unsigned char)*at++;
        if (c == '"') {
            if (sink->buffer) sink->buffer[sink->length] = '\0';
            return true;
        }
        if (c < 0x20) return false;
        if (c != '\\') {
            put(sink, (char)c);
            continue;
        }
        if (at == end) return false;
        switch (*at++) {
        case '"': put(sink, '"'); break;
        case '\\': put(sink, '\\'); break;
        case '/': put(sink, '/'); break;
        case 'b': put(sink, '\b'); break;
        case 'f': put(sink, '\f'); break;
        case 'n': put(sink, '\n'); break;
        case 'r': put(sink, '\r'); break;
        case 't': put(sink, '\t'); break;
        case 'u': {
            uint32_t unit, low;
            if (!hex4(&unit) || unit == 0 || (unit >= 0xdc00 && unit < 0xe000)) return false;
            if (unit >= 0xd800 && unit < 0xdc00) {
                if (end - at < 2 || at[0] != '\\' || at[1] != 'u') return false;
                at += 2;
                if (!hex4(&low) || low < 0xdc00 || low >= 0xe000) return false;
                unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            }
            put_code_point(sink, unit);
            break;
        }
        default: return false;
        }
    }
    return false;
}

static bool digits(void) {
    const char *first = at;
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at > first;
}

static bool skip_number(void) {
    if (at < end && *at == '-') at++;
    if (at < end && *at == '0') at++;
    else if (!digits()) return false;
    if (at < end && *at == '.') {
        at++;
        if (!digits()) return false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        if (!digits()) return false;
    }
    return true;
}

static bool skip_word(const char *word) {
    size_t length = strlen(word);
    if ((size_t)(end - at) < length || memcmp(at, word, length) != 0) return false;
    at += length;
    return true;
}

static bool skip_value(int depth) {
    struct sink nowhere = {0};
    skip_space();
    if (at == end || depth > MAX_DEPTH) return false;
    switch (*at) {
    case '"': return read_text(&nowhere);
    case 't': return skip_word("true");
    case 'f': return skip_word("false");
    case 'n': return skip_word("null");
    case '[':
        at++;
        if (take(']')) return true;
        do {
            if (!skip_value(depth + 1)) return false;
        } while (take(','));
        return take(']');
    case '{':
        at++;
        if (take('}')) return true;
        do {
            if (!read_text(&nowhere) || !take(':') || !skip_value(depth + 1)) return false;
        } while (take(','));
        return take('}');
    default: return skip_number();
    }
}

/* --- Writing JSON ------------------------------------------------------------------------------------------ */

static void write_text(const char *text) {
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') printf("\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f) printf("\\u%04x", *c);
        else putchar(*c);
    }
    putchar('"');
}

/* An error that names a path, if there is one. */
static int fail(const char *kind, const char *message, const char *path) {
    char text[MAX_PATH + 128];
    if (path) snprintf(text, sizeof text, "%s `%s`", message, path);
    else snprintf(text, sizeof text, "%s", message);
    printf("{\"error\":{\"kind\":\"%s\",\"message\":", kind);
    write_text(text);
    puts("}}");
    return 0;
}

static int misuse(const char *what) {
    fprintf(stderr, "c_word_count: %s\n", what);
    return EXIT_MISUSE;
}

/* --- The tool ---------------------------------------------------------------------------------------------- */

static int count(const char *argument) {
    char path[MAX_PATH + 16];
    snprintf(path, sizeof path, "%s%s", argument[0] == '/' ? "" : "/shared/", argument);
    FILE *file = fopen(path, "rb");
    unsigned long long words = 0, lines = 0, bytes = 0;
    bool within = false;
    if (file) {
        static unsigned char chunk[1 << 16];
        size_t length;
        while ((length = fread(chunk, 1, sizeof chunk, file)) > 0) {
            bytes += length;
            for (size_t i = 0; i < length; i++) {
                bool space = chunk[i] == ' ' || (chunk[i] >= '\t' && chunk[i] <= '\r');
                words += !space && !within;
                within = !space;
                lines += chunk[i] == '\n';
            }
        }
    }
    if (!file || ferror(file)) {
        switch (errno) {
        case ENOENT: return fail("not_found", "no such file", path);
        case EACCES:
        case EPERM:
        case ENOTCAPABLE: return fail("denied", "not allowed to read", path);
        case EISDIR: return fail("failed", "it is a directory:", path);
        default: return fail("failed", "cannot read", path);
        }
    }
    fclose(file);
    printf("{\"ok\":{\"content\":[{\"type\":\"text\",\"text\":\"%llu words, %llu lines, %llu bytes\"}],"
           "\"structured\":{\"words\":%llu,\"lines\":%llu,\"bytes\":%llu}}}\n",
           words, lines, bytes, words, lines, bytes);
    return 0;
}

/* The arguments of a call: exactly one, `path`. Says itself what is wrong with them. */
static bool read_arguments(char *path, const char **wrong) {
    char key[MAX_KEY];
    bool has_path = false;
    *wrong = "arguments must be an object";
    if (!take('{')) return false;
    *wrong = "missing required field 'path' in arguments";
    if (take('}')) return false;
    do {
        struct sink name = {key, sizeof key, 0, false}, text = {path, MAX_PATH, 0, false};
        *wrong = "arguments must be an object";
        if (!read_text(&name) || !take(':')) return false;
        *wrong = "arguments have a field that is not 'path'";
        if (name.overflow || strcmp(key, "path") != 0) return false;
        *wrong = "field 'path' is given twice";
        if (has_path) return false;
        *wrong = "field 'path': it must be a string without NUL";
        if (!read_text(&text)) return false;
        *wrong = "field 'path': it is too long";
        if (text.overflow) return false;
        *wrong = "field 'path': it must not be empty";
        if (text.length == 0) return false;
        has_path = true;
    } while (take(','));
    *wrong = "arguments must be an object";
    return take('}');
}

static int call(void) {
    size_t length = fread(frame, 1, sizeof frame, stdin);
    if (ferror(stdin) || length > MAX_FRAME) return misuse("the call frame cannot be read or is too long");
    at = frame;
    end = frame + length;

    /* Once to see that it is JSON and nothing follows it, then again for what counts. */
    if (!skip_value(0)) return misuse("the call frame is not JSON");
    skip_space();
    if (at != end) return misuse("something follows the call frame");
    at = frame;
    if (!take('{') || take('}')) return misuse("the call frame is not an object with fields");

    static char path[MAX_PATH];
    const char *wrong = NULL;
    bool is_version_1 = false, is_ours = false, has_arguments = false, is_good = false;
    do {
        char key[MAX_KEY], tool[MAX_KEY];
        struct sink name = {key, sizeof key, 0, false}, text = {tool, sizeof tool, 0, false};
        if (!read_text(&name) || !take(':')) return misuse("the call frame is not an object");
        skip_space();
        if (!name.overflow && strcmp(key, "v") == 0) {
            const char *first = at;
            if (!skip_number()) return misuse("the call frame's version is not a number");
            is_version_1 = at - first == 1 && *first == '1';
        } else if (!name.overflow && strcmp(key, "tool") == 0) {
            if (!read_text(&text)) return misuse("the call frame's tool is not text");
            is_ours = !text.overflow && strcmp(tool, "c_word_count") == 0;
        } else if (!name.overflow && strcmp(key, "arguments") == 0) {
            const char *arguments = at;
            if (has_arguments) return misuse("the call frame has arguments twice");
            has_arguments = true;
            is_good = read_arguments(path, &wrong);
            at = arguments;
            if (!skip_value(1)) return misuse("the call frame is not JSON");
        } else if (!skip_value(1)) {
            return misuse("the call frame is not JSON");
        }
    } while (take(','));

    if (!is_version_1) return misuse("the call frame is not of version 1");
    if (!is_ours) return fail("not_found", "no such tool in this module", NULL);
    if (!has_arguments) return misuse("the call frame has no arguments");
    if (!is_good) return fail("invalid_arguments", wrong, NULL);
    return count(path);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "call") == 0) return call();
    if (argc > 1 && strcmp(argv[1], "describe") == 0) {
        fputs(DECLARATION, stdout);
        return 0;
    }
    return misuse("write `describe` or `call`");
}
