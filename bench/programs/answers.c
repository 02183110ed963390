/* The floor under servers at `hello`: one epoll, one recv and one send for each request, and nothing else.
 *
 *     answers PORT
 *
 * It reads no request and runs no Python; each piece that comes is answered with the bytes that Headway sends for
 * `hello`. What a request costs here is the kernel's, so no server that makes one recv and one send for each
 * can cost less, or bring wrk to more requests a second.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 256

static const char ANSWER[] =
    "HTTP/1.1 200 OK\r\nServer: headway/0.1.0\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
    "Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";
static const int YES = 1;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void watch(int epoll, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

static void accept_all(int epoll, int listener) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &YES, sizeof YES);
        watch(epoll, fd, EPOLLIN | EPOLLET);
    }
}

static void answer(int fd) {
    char request[4096];
    ssize_t received = recv(fd, request, sizeof request, 0);
    if (received > 0) send(fd, ANSWER, sizeof ANSWER - 1, MSG_NOSIGNAL);
    else close(fd);
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: answers PORT\n"), 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &YES, sizeof YES);
    if (bind(listener, (struct sockaddr *)&address, sizeof address)) fail("bind");
    if (listen(listener, SOMAXCONN)) fail("listen");
    int epoll = epoll_create1(0);
    watch(epoll, listener, EPOLLIN);
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            fd == listener ? accept_all(epoll, listener) : answer(fd);
        }
    }
}
