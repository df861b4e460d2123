/* For probes in C: their settings, and the verdict line. Arguments: nonce, project. */
#ifndef CTK_H
#define CTK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static char NONCE[128], PROJ[512], ID[64], H_[512], OUT_[512], CENTRAL_[512], M[700], CONF[16384];
static char *conf(const char *key) { 
    size_t n = strlen(key);
    char *p = CONF;
    while (*p) {
        if (!strncmp(p, key, n) && p[n] == '=') {
            char *e = strchr(p, '\n');
            size_t l = (e ? (size_t)(e - p) : strlen(p)) - n - 1;
            char *r = malloc(l + 1);
            memcpy(r, p + n + 1, l);
            r[l] = 0;
            return r;
        }
        p = strchr(p, '\n');
        if (!p)
            break;
        p++;
    }
    return strdup("");
}
static void verdict(const char *v, const char *fmt, ...) {
    char d[600], o[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d, 400, fmt, ap);
    va_end(ap);
    for (char *c = d; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126)
            *c = ' ';
    int n = snprintf(o, sizeof o, "\nPROBE %s %s %s\n", ID, v, d);
    fflush(stdout);
    write(1, o, n);
    _exit(0);
}
#define escaped(...) verdict("ESCAPED", __VA_ARGS__)
#define contained(...) verdict("CONTAINED", __VA_ARGS__)
#define skip(...) verdict("SKIP", __VA_ARGS__)
static void ctk_init(int argc, char **argv) {
    /* Ends the probe where nobody else does. */
    alarm(50);
    if (argc < 3) {
        fprintf(stderr, "usage: probe nonce project\n");
        exit(2);
    }
    snprintf(NONCE, sizeof NONCE, "%s", argv[1]);
    snprintf(PROJ, sizeof PROJ, "%s", argv[2]);
    char p[700];
    snprintf(p, sizeof p, "%s/fixture.conf", PROJ);
    int fd = open(p, O_RDONLY);
    if (fd >= 0) {
        int n = read(fd, CONF, sizeof CONF - 1);
        CONF[n > 0 ? n : 0] = 0;
        close(fd);
    }
    snprintf(ID, sizeof ID, "%s", conf("ID"));
    snprintf(H_, sizeof H_, "%s", conf("H"));
    snprintf(OUT_, sizeof OUT_, "%s", conf("OUT"));
    snprintf(CENTRAL_, sizeof CENTRAL_, "%s", conf("CENTRAL"));
    snprintf(M, sizeof M, "%s/m-%s", OUT_, NONCE);
    char s[100];
    int n = snprintf(s, sizeof s, "PROBE-START %s\n", ID);
    write(1, s, n);
}
static int has_nonce(const char *path) {
    char b[256];
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    int n = read(fd, b, 255);
    close(fd);
    if (n < 0)
        return 0;
    b[n] = 0;
    return strstr(b, NONCE) != 0;
}
#endif
