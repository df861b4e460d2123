// What a desktop application does with Lazaret, without a library: starts the sidecar, chats, approves, and dies.
// node sidecar.mjs PATH/TO/lazaret PROJECT SCRIPT
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { connect } from 'node:net'

const [program, project, script] = process.argv.slice(2)
// Its input is a pipe of ours: the sidecar ends when that closes, and when this process ends, however it ends.
const sidecar = spawn(program, ['serve', '--project', project, '--listen', '127.0.0.1:0', '--provider', 'mock', '--script', script],
  { stdio: ['pipe', 'pipe', 'inherit'] })

createInterface({ input: sidecar.stdout }).once('line', (line) => {
  const { address, token } = JSON.parse(line)
  open(address, token)
})

// A WebSocket by hand; with the package `ws`: new WebSocket(url, { headers: { Authorization: `Bearer ${token}` } })
function open(address, token) {
  const port = Number(address.split(':').pop())
  const socket = connect(port, '127.0.0.1')
  socket.write(`GET /ws HTTP/1.1\r\nHost: ${address}\r\nAuthorization: Bearer ${token}\r\nConnection: Upgrade\r\n` +
    'Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n')
  const say = (type, payload) => {
    const text = Buffer.from(JSON.stringify({ type, payload }))
    const head = Buffer.from([0x81, 0x80 | 126, text.length >> 8, text.length & 255, 0, 0, 0, 0])
    socket.write(Buffer.concat([head, text]))
  }
  let bytes = Buffer.alloc(0)
  let upgraded = false
  let approvals = 0
  socket.on('data', (piece) => {
    bytes = Buffer.concat([bytes, piece])
    if (!upgraded) {
      const end = bytes.indexOf('\r\n\r\n')
      if (end < 0) return
      upgraded = true
      bytes = bytes.subarray(end + 4)
      say('chat:send', { conversationId: 'main', content: 'Make a file, then wait.' })
    }
    for (let text; (text = next()) !== undefined;) hear(JSON.parse(text))
  })
  const next = () => {
    if (bytes.length < 2) return undefined
    const long = { 126: 2, 127: 8 }[bytes[1]] ?? 0
    if (bytes.length < 2 + long) return undefined
    const length = long === 0 ? bytes[1] : long === 2 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2))
    if (bytes.length < 2 + long + length) return undefined
    const isText = (bytes[0] & 15) === 1
    const text = bytes.subarray(2 + long, 2 + long + length).toString()
    bytes = bytes.subarray(2 + long + length)
    return isText ? text : next()
  }
  const hear = ({ type, payload }) => {
    if (type !== 'chat:tool-confirm') return
    console.log(`${payload.toolName}: ${payload.why}`)
    say('chat:tool-approve', { toolId: payload.toolId, answer: 'once' })
    if (++approvals === 2) {
      console.log('waiting for the last call')
      setTimeout(() => process.kill(process.pid, 'SIGKILL'), 3000)
    }
  }
}
