// SPDX-License-Identifier: GPL-2.0

// An echo server and its client, by Go's own network package: raw system calls, a poller of its own.
//
// echo-go serve ADDRESS | echo-go talk ADDRESS CONNECTIONS BYTES
package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func serve(address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fail(err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// talk sends random bytes and checks what comes back.
func talk(address string, size int) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := make([]byte, size)
	if _, err := rand.Read(sent); err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		if err == nil {
			err = conn.(*net.TCPConn).CloseWrite()
		}
		written <- err
	}()
	got, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if err := <-written; err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return fmt.Errorf("%d bytes came back of %d, or others", len(got), size)
	}
	return nil
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		serve(os.Args[2])
	}
	if len(os.Args) != 5 {
		fail(fmt.Errorf("serve ADDRESS | talk ADDRESS CONNECTIONS BYTES"))
	}
	connections, _ := strconv.Atoi(os.Args[3])
	size, _ := strconv.Atoi(os.Args[4])
	done := make(chan error, connections)
	for range connections {
		go func() { done <- talk(os.Args[2], size) }()
	}
	for range connections {
		if err := <-done; err != nil {
			fail(err)
		}
	}
	fmt.Println("ok")
}
