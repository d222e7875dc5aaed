// Thousands of goroutines: channels, select, mutexes, a pipeline of sieves, timers, garbage, pipes and commands.
package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func sieve(count int) int {
	source := make(chan int)
	go func() {
		for n := 2; ; n++ {
			source <- n
		}
	}()
	prime := 0
	for i := 0; i < count; i++ {
		prime = <-source
		next := make(chan int)
		go func(from, to chan int, by int) {
			for n := range from {
				if n%by != 0 {
					to <- n
				}
			}
		}(source, next, prime)
		source = next
	}
	return prime
}

func ring(length, rounds int) int {
	first := make(chan int)
	from := first
	for i := 1; i < length; i++ {
		to := make(chan int)
		go func(from, to chan int) {
			for n := range from {
				to <- n + 1
			}
			close(to)
		}(from, to)
		from = to
	}
	token := 0
	for i := 0; i < rounds; i++ {
		go func(n int) { first <- n }(token)
		token = <-from + 1
	}
	close(first)
	return token
}

func tree(depth int) int {
	if depth == 0 {
		return 1
	}
	results := make(chan int, 2)
	for i := 0; i < 2; i++ {
		go func() { results <- tree(depth - 1) }()
	}
	return 1 + <-results + <-results
}

func counted() (int64, int, int) {
	var wait sync.WaitGroup
	var sum atomic.Int64
	var lock sync.Mutex
	seen := map[int]int{}
	for i := 0; i < 5000; i++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			sum.Add(int64(i))
			runtime.Gosched()
			lock.Lock()
			seen[i%97]++
			lock.Unlock()
		}()
	}
	wait.Wait()
	return sum.Load(), len(seen), seen[13]
}

// Loops without calls are preempted by signals, and what they make is collected.
func busy() []string {
	results := make([]string, 6)
	var wait sync.WaitGroup
	for i := range results {
		wait.Add(1)
		go func() {
			defer wait.Done()
			x := uint64(i + 1)
			for n := 0; n < 120_000_000; n++ {
				x = x*6364136223846793005 + 1442695040888963407
			}
			hash := sha256.New()
			for n := 0; n < 3000; n++ {
				hash.Write([]byte(strings.Repeat(fmt.Sprint(n), 10)))
			}
			results[i] = fmt.Sprintf("%x %x", x, hash.Sum(nil)[:6])
		}()
	}
	wait.Wait()
	return results
}

func ticks() int {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	done := time.After(10 * time.Minute)
	count := 0
	for count < 30 {
		select {
		case <-ticker.C:
			count++
		case <-done:
			return -1
		}
	}
	return count
}

func piped() string {
	read, write, err := os.Pipe()
	if err != nil {
		return err.Error()
	}
	go func() {
		for i := 0; i < 5000; i++ {
			fmt.Fprintln(write, "line", i)
		}
		write.Close()
	}()
	hash, lines := fnv.New64a(), 0
	for scanner := bufio.NewScanner(read); scanner.Scan(); lines++ {
		hash.Write(scanner.Bytes())
	}
	return fmt.Sprintf("%d lines %x", lines, hash.Sum64())
}

func commands() []string {
	results := make(chan string)
	for i := 0; i < 6; i++ {
		go func() {
			out, err := exec.Command("/bin/sh", "-c", fmt.Sprintf("echo %d; exit %d", i*i, i%3)).Output()
			results <- fmt.Sprintf("%d %q %v", i, out, err)
		}()
	}
	all := []string{}
	for i := 0; i < 6; i++ {
		all = append(all, <-results)
	}
	sort.Strings(all)
	return all
}

func main() {
	fmt.Println("prime", sieve(600), "ring", ring(2000, 60), "tree", tree(14))
	fmt.Println(counted())
	fmt.Println(strings.Join(busy(), "\n"))
	fmt.Println("ticks", ticks(), piped())
	fmt.Println(strings.Join(commands(), "\n"))
	text, err := os.ReadFile("input/text")
	words := strings.Fields(string(text))
	sort.Strings(words)
	fmt.Println(len(words), words[0], words[len(words)/2], err)
}
